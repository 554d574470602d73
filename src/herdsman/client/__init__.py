"""Herdsman over HTTP: the clients that people program with, and the queue that workers ask."""

from herdsman.client.async_client import AsyncClient
from herdsman.client.async_handle import AsyncJobHandle
from herdsman.client.async_lease import AsyncLease
from herdsman.client.client import Client
from herdsman.client.errors import JobCancelled, JobFailed, LeaseDenied, LeaseLost
from herdsman.client.handle import JobHandle
from herdsman.client.lease import Lease
from herdsman.client.watching import LogLine

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
