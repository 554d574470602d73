"""Workers, as people and their programs see them."""

from herdsman.wire.workers import WorkerOut, WorkersOut

__all__ = ["WorkerOut", "WorkersOut"]
