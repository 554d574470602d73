"""Leases and GPUs over HTTP."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from herdsman.client import calls
from herdsman.client.call import Call
from herdsman.wire.leases import GpuOut, GpusIn, GpusOut, LeaseOut, LeasesOut, TakenOut


@dataclass(frozen=True, slots=True)
class ApiLeases:
    ask: Callable[[Call[Any]], Any]

    def page(self, *, ended: bool, after: str | None, limit: int) -> LeasesOut:
        return self.ask(calls.leases(ended=ended, after=after, limit=limit))

    def release(self, token: str) -> LeaseOut:
        return self.ask(calls.release_lease(token))

    def revoke(self, token: str) -> LeaseOut:
        return self.ask(calls.revoke_lease(token))

    def gpus(self, after: str | None, limit: int) -> GpusOut:
        return self.ask(calls.gpus(after=after, limit=limit))

    def report(self, node: str, told: GpusIn) -> TakenOut:
        return self.ask(calls.report_gpus(node, told))

    def clear(self, uuid: str) -> GpuOut:
        return self.ask(calls.clear_gpu(uuid))
