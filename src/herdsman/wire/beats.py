"""A worker's beats: what it says of itself and its GPUs, and the orders that it gets in answer."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from herdsman.core.gpu import GpuDevice, GpuReport
from herdsman.core.model import ClaimKey, JobId
from herdsman.core.work import MOST_AT_ONCE, Load, LogLines, Orders, Progress, Pulse
from herdsman.wire.model import Reply, Request, model_name, name
from herdsman.wire.work import MOST_MODELS, KeyIn, RefusedOut

MOST_LINES = 2_000


class DeviceIn(Request):
    index: int
    uuid: str = Field(max_length=128)
    name: str = Field(max_length=128)
    total_mb: int
    used_mb: int
    utilisation: int | None = None
    processes: tuple[tuple[int, int | None], ...] = Field(default=(), max_length=1000, fail_fast=True)
    own_mb: int | None = None


class ReportIn(Request):
    ready: bool
    seen: bool | None
    fault: str | None = Field(default=None, max_length=1000)
    vram_total_mb: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    vram_used_mb: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    vram_age_seconds: float = Field(default=0, ge=0, le=31_536_000)
    disk_total_mb: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    disk_free_mb: Annotated[int, Field(ge=0, lt=2**53)] | None = None
    devices: tuple[DeviceIn, ...] = Field(default=(), max_length=64, fail_fast=True)
    node: Annotated[str, name(128)] | None = Field(default=None, description="The machine they are in.")

    @staticmethod
    def of(report: GpuReport) -> "ReportIn":
        return ReportIn(
            ready=report.ready,
            seen=report.seen,
            fault=report.fault,
            vram_total_mb=report.vram_total_mb,
            vram_used_mb=report.vram_used_mb,
            vram_age_seconds=report.vram_age.total_seconds(),
            disk_total_mb=report.disk_total_mb,
            disk_free_mb=report.disk_free_mb,
            devices=tuple(
                DeviceIn(
                    index=each.index,
                    uuid=each.uuid,
                    name=each.name,
                    total_mb=each.total_mb,
                    used_mb=each.used_mb,
                    utilisation=each.utilisation,
                    processes=each.processes,
                    own_mb=each.own_mb,
                )
                for each in report.devices
            ),
            node=report.node,
        )

    def report(self) -> GpuReport:
        return GpuReport(
            ready=self.ready,
            seen=self.seen,
            fault=self.fault,
            vram_total_mb=self.vram_total_mb,
            vram_used_mb=self.vram_used_mb,
            vram_age=timedelta(seconds=self.vram_age_seconds),
            disk_total_mb=self.disk_total_mb,
            disk_free_mb=self.disk_free_mb,
            devices=tuple(GpuDevice(**dict(each)) for each in self.devices),
            node=self.node,
        )


class HeldIn(KeyIn):
    """One claim that the beat keeps alive, with what there is to say of its job."""

    done: float | None = Field(default=None, ge=0, le=1)
    note: str | None = Field(default=None, max_length=1000)
    log_first: int = Field(default=0, ge=0, lt=2**31)
    log_lines: tuple[Annotated[str, Field(max_length=16_384)], ...] = Field(
        default=(), max_length=MOST_LINES, fail_fast=True
    )


class PulseIn(Request):
    holding: tuple[HeldIn, ...] = Field(default=(), max_length=MOST_AT_ONCE, fail_fast=True)
    report: ReportIn | None = None
    models: (
        Annotated[tuple[Annotated[str, model_name()], ...], Field(max_length=MOST_MODELS, fail_fast=True)]
        | None
    ) = None
    revision: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    trouble: str | None = Field(default=None, max_length=1000)
    unfit: (
        Annotated[
            dict[Annotated[str, name(64)], Annotated[str, Field(max_length=1000)]], Field(max_length=200)
        ]
        | None
    ) = Field(default=None, description="Types of jobs that it does not take at the moment, and why.")

    @staticmethod
    def of(pulse: Pulse) -> "PulseIn":
        return PulseIn(
            holding=tuple(_held(key, pulse) for key in pulse.keys),
            report=None if pulse.report is None else ReportIn.of(pulse.report),
            models=pulse.models,
            revision=pulse.revision,
            trouble=pulse.trouble,
            unfit=None if pulse.unfit is None else dict(pulse.unfit),
        )

    def pulse(self) -> Pulse:
        return Pulse(
            keys=tuple(each.key() for each in self.holding),
            report=None if self.report is None else self.report.report(),
            models=self.models,
            revision=self.revision,
            trouble=self.trouble,
            unfit=self.unfit,
            progress={
                each.key(): Progress(done=each.done, note=each.note)
                for each in self.holding
                if each.done is not None
            },
            logs={
                each.key(): LogLines(first=each.log_first, lines=each.log_lines)
                for each in self.holding
                if each.log_lines
            },
        )


class LoadOut(Reply):
    """What the worker has to serve from now on."""

    revision: int
    model: str | None = None
    adapter: str | None = None
    variant: str | None = None
    preload: tuple[str, ...] = ()

    @staticmethod
    def of(load: Load) -> "LoadOut":
        return LoadOut(
            revision=load.revision,
            model=load.model,
            adapter=load.adapter,
            variant=load.variant,
            preload=load.preload,
        )

    def load(self) -> Load:
        return Load(
            revision=self.revision,
            model=self.model,
            adapter=self.adapter,
            variant=self.variant,
            preload=self.preload,
        )


class OrdersOut(Reply):
    expires_at: datetime
    drain: bool
    load: LoadOut | None = None
    cancel: tuple[RefusedOut, ...] = ()
    lost: tuple[RefusedOut, ...] = ()
    not_active: str | None = Field(
        default=None, description="Why the worker is given no jobs yet; null once it is active."
    )
    token: str | None = Field(default=None, description="A new token for every later request.")
    token_expires_at: datetime | None = None

    @staticmethod
    def of(orders: Orders) -> "OrdersOut":
        return OrdersOut(
            expires_at=orders.expires_at,
            drain=orders.drain,
            cancel=tuple(RefusedOut.of(key, "it was cancelled") for key in sorted(orders.cancel, key=str)),
            lost=tuple(RefusedOut.of(key, why) for key, why in orders.lost.items()),
            load=None if orders.load is None else LoadOut.of(orders.load),
            not_active=orders.not_active,
        )

    def orders(self) -> Orders:
        return Orders(
            expires_at=self.expires_at,
            drain=self.drain,
            cancel=frozenset(ClaimKey(JobId(each.job_id), each.token) for each in self.cancel),
            lost={ClaimKey(JobId(each.job_id), each.token): each.why for each in self.lost},
            load=None if self.load is None else self.load.load(),
            not_active=self.not_active,
        )


def _held(key: ClaimKey, pulse: Pulse) -> HeldIn:
    progress, logs = pulse.progress.get(key), pulse.logs.get(key)
    return HeldIn(
        job_id=key.job_id,
        token=key.token,
        done=None if progress is None else progress.done,
        note=None if progress is None else progress.note,
        log_first=0 if logs is None else logs.first,
        log_lines=() if logs is None else logs.lines,
    )
