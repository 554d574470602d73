"""Herdsman over HTTP: the clients that people program with, and the queue that workers ask."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herdsman.client.client import AsyncClient, Client
    from herdsman.client.handle import AsyncJobHandle, JobCancelled, JobFailed, JobHandle, LogLine
    from herdsman.client.lease import AsyncLease, Lease, LeaseDenied, LeaseLost

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "AsyncLease",
    "Client",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "Lease",
    "LeaseDenied",
    "LeaseLost",
    "LogLine",
]

# Loaded when they are asked for: an HTTP client takes a while, and a worker or a command needs one part of it.
_MODULES = {
    "client": "AsyncClient Client",
    "handle": "AsyncJobHandle JobCancelled JobFailed JobHandle LogLine",
    "lease": "AsyncLease Lease LeaseDenied LeaseLost",
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
