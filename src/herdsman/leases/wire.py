"""Leases and GPUs, as holders, nodes and people see them."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import AliasChoices, Field

from herdsman.fleet.model import GpuDevice
from herdsman.ids import LARGEST_MEMORY_MB
from herdsman.jobs.worker_wire import DeviceIn
from herdsman.leases import rules
from herdsman.wire import Reply, Request, Seconds, lease_id, name, optional, values_of

MOST_DEVICES = 64


class LeaseIn(Request):
    """How much memory of a GPU, for how long, and how long to wait for it."""

    agent: Annotated[str, name("agent")] | None = Field(
        default=None,
        validation_alias=AliasChoices("agent", "agent_name"),
        description="For whom; a submitter's token says it already. `agent_name` is the same.",
    )
    min_memory_mb: int = Field(
        description="From 1 MB on.", json_schema_extra={"minimum": 1, "maximum": LARGEST_MEMORY_MB}
    )
    ttl_seconds: float | None = Field(
        default=None,
        description="It ends so long after its last heartbeat; without this LEASE_TTL_SEC.",
        json_schema_extra={"minimum": rules.SHORTEST_TTL_S, "maximum": rules.LONGEST_TTL_S},
    )
    exclusive: bool = Field(default=False, description="Nobody else is on the GPU.")
    wait_seconds: float = Field(
        default=0,
        description="How long the answer is held back while there is nothing free.",
        json_schema_extra={"minimum": 0, "maximum": rules.LONGEST_WAIT_S},
    )
    allow_cpu: bool = Field(default=False, description="Rather a lease without a GPU than none.")
    node: Annotated[str, name("node")] | None = optional("Only a GPU of this machine.")
    gpu_index: Annotated[int, Field(json_schema_extra={"minimum": 0})] | None = None
    token: Annotated[str, name("token")] | None = optional(
        "A random name for the lease, 16 characters or more: sent again, it brings the same lease."
    )
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])

    def request(self, agent: str, policy: rules.LeasePolicy) -> rules.LeaseRequest:
        spec = rules.LeaseSpec(
            memory_mb=self.min_memory_mb, exclusive=self.exclusive, node=self.node, gpu_index=self.gpu_index
        )
        return rules.LeaseRequest(
            agent=agent,
            spec=spec,
            ttl=rules.check_ttl(self.ttl_seconds, policy),
            allow_cpu=self.allow_cpu,
            token=self.token,
            metadata=self.metadata,
        )


class LeaseAnswer(Reply):
    """A lease, or the reason why there is none and when to ask again."""

    granted: bool
    token: str | None = optional("Names the lease in every later word.")
    lease_seq: int | None = Field(
        default=None,
        validation_alias=AliasChoices("lease_seq", "seq"),
        description="Rises with each lease of a GPU: a fence.",
    )
    mode: str | None = optional("`gpu`, or `cpu` where that was allowed.")
    node_id: str | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    memory_mb: int | None = None
    expires_at: datetime | None = None
    ttl_seconds: Seconds | None = None
    margin_seconds: Seconds | None = optional("So long before its end the holder stops, unless a heartbeat was taken.")
    overruled: str | None = optional("In shadow mode: why it would have been refused.")
    reason: str | None = None
    detail: str | None = None
    retry_after_seconds: Seconds | None = None

    @classmethod
    def of(cls, value: rules.Lease, policy: rules.LeasePolicy) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]  (it tells the margin)
        ttl = value.ttl or policy.ttl
        more = {"granted": True, "reason": None, "ttl": ttl, "margin": policy.margin_of(ttl)}
        return cls.model_validate({**values_of(value), **more})

    @classmethod
    def refused(cls, refusal: rules.Refusal) -> Self:
        return cls.model_validate({**values_of(refusal), "granted": False, "retry_after": refusal.retry_after})


class BeatIn(Request):
    timestamp: datetime | float | None = optional("The caller's own clock; it decides nothing.")


class KeptOut(Reply):
    token: str
    expires_at: datetime
    margin_seconds: Seconds


class LeaseOut(Reply):
    lease_id: str = Field(default="", description="Names it for people and in events; good for nothing else.")
    token: str | None = optional("Only for those who may end the lease.")
    agent: str
    agent_name: str = Field(validation_alias=AliasChoices("agent_name", "agent"))
    status: str
    reason: str
    mode: str
    node_id: str | None
    gpu_index: int | None
    gpu_uuid: str | None
    memory_mb: int
    exclusive: bool
    lease_seq: int = Field(validation_alias=AliasChoices("lease_seq", "seq"))
    worker_id: str | None = Field(description="The worker whose claim it belongs to.")
    created_at: datetime
    expires_at: datetime
    last_heartbeat: datetime | None
    ended_at: datetime | None
    overruled: str | None
    metadata: dict[str, Any]

    @classmethod
    def of(cls, value: rules.Lease) -> Self:
        return super().of(value).model_copy(update={"lease_id": lease_id(value.token)})

    def without_token(self) -> "LeaseOut":
        return self.model_copy(update={"token": None})


class LeasesOut(Reply):
    leases: tuple[LeaseOut, ...]
    next: str | None = optional("Send it as `after` for the page that follows.")


class GpusIn(Request):
    gpus: tuple[DeviceIn, ...] = Field(max_length=MOST_DEVICES, fail_fast=True)
    age_seconds: float = Field(default=0, ge=0, le=31_536_000, description="How long ago they were measured.")

    @staticmethod
    def of(devices: tuple[GpuDevice, ...], age: timedelta) -> "GpusIn":
        shown = (
            replace(each, uuid=each.uuid[:128], name=each.name[:128], own_mb=None) for each in devices[:MOST_DEVICES]
        )
        gpus = tuple(DeviceIn.model_validate(each, from_attributes=True) for each in shown)
        return GpusIn(gpus=gpus, age_seconds=age.total_seconds())

    def devices(self) -> list[GpuDevice]:
        return [GpuDevice(**dict(each)) for each in self.gpus]


class TakenOut(Reply):
    taken: tuple[str, ...] = Field(description="The GPUs whose word was taken; others are a live worker's.")


class GpuOut(Reply):
    uuid: str
    node_id: str
    gpu_index: int = Field(validation_alias=AliasChoices("gpu_index", "index"))
    name: str
    worker_id: str | None
    total_mb: int
    used_mb: int
    outside_mb: int
    leased_mb: int
    utilisation: int | None
    processes: tuple[tuple[int | None, ...], ...]
    measured_at: datetime
    lease_seq: int
    quarantined_at: datetime | None
    quarantine_reason: str | None

    @classmethod
    def of(cls, value: rules.Gpu, leased_mb: int) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]  (a GPU does not know it)
        return cls.model_validate({**values_of(value), "leased_mb": leased_mb})


class GpusOut(Reply):
    gpus: tuple[GpuOut, ...]
    next: str | None = optional("Send it as `after` for the page that follows.")
