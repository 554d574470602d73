"""A fake Runpod that plugin authors and users may test against: real HTTP, real processes, every fault."""

from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod.faults import Fault, Faults
from herdsman.testing.fakes.runpod.ledger import Asked, Ledger, Life
from herdsman.testing.fakes.runpod.pods import Pace
from herdsman.testing.fakes.runpod.server import FakeRunpod, serve
from herdsman.testing.fakes.runpod.wire import NetworkVolume

__all__ = [
    "Asked",
    "FakeRunpod",
    "Fault",
    "Faults",
    "Ledger",
    "Life",
    "ManualClock",
    "NetworkVolume",
    "Pace",
    "serve",
]
