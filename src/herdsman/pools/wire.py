"""Pools of warm workers with their schedules: asked for in two spellings, answered in that of the table."""

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Annotated, Self, TypeVar

from pydantic import AliasChoices, Field

from herdsman import wire
from herdsman.errors import InvalidRequest
from herdsman.ids import DEFAULT_AGENT, PoolId
from herdsman.pools import rules
from herdsman.states import WorkerStatus
from herdsman.wire import Reply, Request

Count = Annotated[int, Field(ge=0, le=rules.MOST_WORKERS)]
Clock = Annotated[str, Field(max_length=5, examples=["08:30"])]
T = TypeVar("T", int, str)
Model = Annotated[str, wire.model_name()]
Variant = Annotated[str, wire.name("variant")]
USUAL_WORKERS = 1
USUAL_HOLD_S = 600
_RULES = tuple(each.name for each in fields(rules.PoolRules))
_LIVING = (WorkerStatus.SPAWNING, WorkerStatus.ACTIVE, WorkerStatus.TERMINATING, WorkerStatus.ERROR)


class SizesIn(Request):
    min: Count | None = wire.optional("Least workers; without it, as at other times.")
    max: Count | None = wire.optional("Most workers; without it, as at other times.")

    def sizes(self) -> rules.Sizes:
        return rules.Sizes(least=self.min, most=self.max)


class WindowIn(SizesIn):
    """From the one time of day to the other; one that ends before it begins ends on the day after."""

    days: Annotated[str, Field(max_length=64, examples=["mon-fri", "sat,sun"])] = "daily"
    begin: Clock = Field(alias="from")
    end: Clock = Field(alias="to", description="`24:00` is the end of the day.")
    timezone: Annotated[str, Field(max_length=64, examples=["Europe/Berlin"])] = "UTC"

    def window(self) -> rules.Window:
        return rules.Window(
            days=rules.parse_days(self.days),
            begin=rules.parse_clock("from", self.begin),
            end=rules.parse_clock("to", self.end),
            zone=self.timezone,
            sizes=self.sizes(),
        )


class SizesOut(Reply):
    min: int | None = Field(default=None, validation_alias=AliasChoices("min", "least"))
    max: int | None = Field(default=None, validation_alias=AliasChoices("max", "most"))


class WindowOut(SizesOut):
    days: str
    begin: str = Field(alias="from")
    end: str = Field(alias="to")
    timezone: str

    @classmethod
    def of(cls, value: rules.Window) -> Self:
        return cls.model_validate(
            {
                "days": rules.shown_days(value.days),
                "from": rules.shown_clock(value.begin),
                "to": rules.shown_clock(value.end),
                "timezone": value.zone,
                "min": value.sizes.least,
                "max": value.sizes.most,
            }
        )


class PoolIn(Request):
    """Two spellings of the same: those of the table, and `agent`, `model`, `num_workers`."""

    pool_id: Annotated[str, wire.name("pool_id")] | None = wire.optional("Made where it is left out.")
    agent_name: Annotated[str, wire.name("agent")] | None = wire.optional("For whom it is kept.")
    agent: Annotated[str, wire.name("agent")] | None = wire.optional("The same as `agent_name`.")
    model_id: Model | None = wire.optional("What its workers load.")
    model: Model | None = wire.optional("The same as `model_id`.")
    adapter: Model | None = None
    variant: Variant | None = None
    desired_workers: Count | None = wire.optional("Workers kept while it is in use; without it, 1.")
    num_workers: Annotated[int, Field(ge=1, le=rules.MOST_WORKERS)] | None = wire.optional(
        "The same as `desired_workers`."
    )
    hold_seconds: Annotated[int, Field(ge=1, le=round(rules.LONGEST_HOLD.total_seconds()))] = Field(
        default=USUAL_HOLD_S, description="So long after its last use it is kept."
    )
    min_workers: Count = Field(default=0, description="Workers kept for as long as it is there, used or not.")
    max_workers: Count | None = wire.optional("Most workers; without it, as many as are kept.")
    warm_buffer: Count | None = wire.optional("Idle workers beyond those at work.")
    idle_timeout_seconds: wire.Duration | None = wire.optional(
        "After so long an idle worker beyond those that are kept is drained."
    )
    max_lifetime_seconds: wire.Duration | None = wire.optional("A worker that is older is replaced, one at a time.")
    schedule: tuple[WindowIn, ...] = Field(
        default=(), max_length=rules.MOST_WINDOWS, fail_fast=True, description="Hours with sizes of their own."
    )
    outside: SizesIn | None = wire.optional("Sizes outside of the schedule's hours.")
    preload: tuple[Model, ...] = Field(
        default=(), max_length=rules.MOST_PRELOADS, fail_fast=True, description="Models loaded before the first job."
    )
    isolated: bool = Field(default=False, description="It has a stream of its own.")
    served_by: rules.ServedBy = Field(
        default=rules.ServedBy.HERDSMAN, description="`hand`: its workers are started by somebody else."
    )

    def new_pool(self) -> rules.NewPool:
        desired = _one("desired_workers", self.desired_workers, "num_workers", self.num_workers)
        schedule = rules.Schedule(
            windows=tuple(each.window() for each in self.schedule),
            outside=rules.Sizes(least=0) if self.outside is None else self.outside.sizes(),
        )
        own = {key: value for key, value in wire.core_fields(self, "schedule").items() if key in _RULES}
        return rules.NewPool(
            pool_id=None if self.pool_id is None else PoolId(self.pool_id),
            agent=_one("agent_name", self.agent_name, "agent", self.agent) or DEFAULT_AGENT,
            serves=rules.Serves(
                model=_one("model_id", self.model_id, "model", self.model), adapter=self.adapter, variant=self.variant
            ),
            desired_workers=USUAL_WORKERS if desired is None else desired,
            hold=timedelta(seconds=self.hold_seconds),
            rules=rules.PoolRules(schedule=schedule, **own),
            served_by=self.served_by,
            isolated=self.isolated,
        )


class ScaleIn(Request):
    desired_workers: Count


class SwapIn(Request):
    """What is left out stays; what is null is taken away."""

    model_id: Model | None = None
    model: Model | None = wire.optional("The same as `model_id`.")
    adapter: Model | None = None
    variant: Variant | None = None

    def changed(self) -> dict[str, str | None]:
        given = {field: getattr(self, field) for field in self.model_fields_set}
        if "model_id" in given:
            given["model"] = _one("model_id", given.pop("model_id"), "model", given.get("model"))
        if not given:
            raise InvalidRequest("a swap must name a model_id, an adapter or a variant")
        return given


class PoolOut(Reply):
    pool_id: str
    status: str
    reason: str
    agent_name: str = Field(validation_alias=AliasChoices("agent_name", "agent"))
    model_id: str | None = Field(default=None, validation_alias=AliasChoices("model_id", "model"))
    adapter: str | None = None
    variant: str | None = None
    desired_workers: int
    spawned_workers: int
    hold_seconds: wire.Seconds
    revision: int
    started_at: datetime
    last_heartbeat: datetime | None = None
    used_at: datetime | None = None
    served_by: str
    isolated: bool
    min_workers: int
    max_workers: int | None = None
    warm_buffer: int | None = None
    idle_timeout_seconds: wire.Seconds | None = None
    max_lifetime_seconds: wire.Seconds | None = None
    schedule: tuple[WindowOut, ...] = ()
    outside: SizesOut | None = None
    preload: tuple[str, ...] = ()
    workers: dict[str, int] = Field(description="Living workers, by their states.")
    at_revision: int = Field(description="Active workers that serve this revision.")
    swapping: bool = Field(description="Some active workers serve an older revision yet.")
    troubles: tuple[str, ...] = Field(default=(), description="Why workers could not load what they were told to.")
    queued: int = Field(description="Jobs that wait for it now.")

    @classmethod
    def of(cls, value: rules.PoolReport) -> Self:
        pool, own, workers = value.pool, value.pool.rules, value.workers
        return cls.model_validate(
            {
                **wire.values_of(own, pool.serves, pool, value),
                # The row is brought up to date by the control loop; this is what there is.
                "spawned_workers": workers.get(WorkerStatus.SPAWNING, 0) + workers.get(WorkerStatus.ACTIVE, 0),
                "schedule": tuple(WindowOut.of(each) for each in own.schedule.windows),
                "outside": own.schedule.outside if own.schedule else None,
                "workers": {status: workers.get(status, 0) for status in _LIVING},
                "swapping": value.swapping,
            }
        )


class PoolsOut(Reply):
    pools: tuple[PoolOut, ...]
    next: str | None = wire.optional("Send it as `after` for the page that follows; null on the last.")


def _one(first: str, one: T | None, second: str, other: T | None) -> T | None:
    """Both spellings may be sent, if they say the same."""
    if one is not None and other is not None and one != other:
        raise InvalidRequest(f"{first} is {one!r} and {second} is {other!r}: they mean the same, send one of them")
    return other if one is None else one


class EvictIn(Request):
    pool_id: Annotated[str, wire.name("pool")]
