"""Leases and GPUs straight from the database."""

from dataclasses import dataclass
from datetime import timedelta

from herdsman.control.commands import gpus, leases
from herdsman.control.services import Services
from herdsman.wire.leases import GpuOut, GpusIn, GpusOut, LeaseOut, LeasesOut, TakenOut

WHO = "cli"


@dataclass(frozen=True, slots=True)
class DirectLeases:
    services: Services

    def page(self, *, ended: bool, after: str | None, limit: int) -> LeasesOut:
        found = leases.list_leases(self.services, agent=None, ended=ended, after=after, limit=limit)
        return LeasesOut(leases=tuple(LeaseOut.of(each) for each in found.leases), next=found.next)

    def release(self, token: str) -> LeaseOut:
        return LeaseOut.of(leases.release_lease(self.services, token, who=WHO))

    def revoke(self, token: str) -> LeaseOut:
        return LeaseOut.of(leases.revoke_lease(self.services, token, who=WHO))

    def gpus(self, after: str | None, limit: int) -> GpusOut:
        found = gpus.list_gpus(self.services, after=after, limit=limit)
        return GpusOut(gpus=tuple(GpuOut.of(gpu, leased) for gpu, leased in found.gpus), next=found.next)

    def report(self, node: str, told: GpusIn) -> TakenOut:
        age = timedelta(seconds=told.age_seconds)
        return TakenOut(taken=tuple(gpus.report_gpus(self.services, node, told.devices(), age)))

    def clear(self, uuid: str) -> GpuOut:
        return GpuOut.of(gpus.clear_gpu(self.services, uuid, who=WHO), 0)
