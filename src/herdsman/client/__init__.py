"""Herdsman over HTTP: the clients that people program with, and the queue that workers ask."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herdsman.client.client import AsyncClient, Client
    from herdsman.client.errors import JobCancelled, JobFailed, LeaseDenied, LeaseLost
    from herdsman.client.handle import AsyncJobHandle, JobHandle, LogLine
    from herdsman.client.lease import AsyncLease, Lease

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
_PLACES = {
    "AsyncClient": "client",
    "AsyncJobHandle": "handle",
    "AsyncLease": "lease",
    "Client": "client",
    "JobCancelled": "errors",
    "JobFailed": "errors",
    "JobHandle": "handle",
    "Lease": "lease",
    "LeaseDenied": "errors",
    "LeaseLost": "errors",
    "LogLine": "handle",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
