"""A fake Runpod that plugin authors and users may test against: real HTTP, real processes, every fault."""

from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod.faults import Fault, Faults
from herdsman.testing.fakes.runpod.ledger import Ledger, PodRecord, RequestRecord
from herdsman.testing.fakes.runpod.pods import Pace
from herdsman.testing.fakes.runpod.server import FakeRunpod
from herdsman.testing.fakes.runpod.wire import NetworkVolume

__all__ = [
    "FakeRunpod",
    "Fault",
    "Faults",
    "Ledger",
    "ManualClock",
    "NetworkVolume",
    "Pace",
    "PodRecord",
    "RequestRecord",
]
