"""A fake Runpod that plugin authors and users may test against: real HTTP, real processes, every fault."""

from herdsman.testing.runpod.catalog import NetworkVolume
from herdsman.testing.runpod.clocks import ManualClock
from herdsman.testing.runpod.faults import Fault, Faults
from herdsman.testing.runpod.ledger import Asked, Ledger, Life
from herdsman.testing.runpod.pods import Pace
from herdsman.testing.runpod.server import FakeRunpod, serve

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
