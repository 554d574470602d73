"""Herdsman over HTTP: the clients that people program with, and the queue that workers ask."""

from herdsman.client.async_client import AsyncClient
from herdsman.client.async_handle import AsyncJobHandle
from herdsman.client.client import Client
from herdsman.client.errors import JobCancelled, JobFailed
from herdsman.client.handle import JobHandle
from herdsman.client.watching import LogLine

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "Client",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "LogLine",
]
