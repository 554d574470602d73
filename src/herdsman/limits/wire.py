"""Limits that people set while everything runs: the policy, as a document, and pauses."""

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from pydantic.config import JsonDict

from herdsman.errors import InvalidRequest, StoreMisconfigured
from herdsman.ids import LARGEST_MEMORY_MB, LONGEST, NAME
from herdsman.limits.control_policy import AgentLimits, ControlPolicy, Gates
from herdsman.limits.rules import ALL, scope_of
from herdsman.wire import Duration, Reply, Request, core_fields, name, optional

MOST_NAMED = 1000
LARGEST = 10_000_000
STORED = "stored"
"""In the context of a document that was let in before: words of a newer version are passed over."""
_CLOSED: JsonDict = {"additionalProperties": False}
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Memory = Annotated[int, Field(ge=0, le=LARGEST_MEMORY_MB)]
Span = Annotated[float, Field(gt=0, le=31_536_000, description="Seconds.")]
Named = Annotated[str, Field(min_length=1, max_length=LONGEST["agent"], pattern=f"^{NAME.pattern}$")]
PoolName = Annotated[str, Field(min_length=1, max_length=LONGEST["pool"], pattern=f"^{NAME.pattern}$")]
Key = PoolName
ReasonText = Annotated[str, Field(max_length=255, description="For who wonders later.")]


class _Part(BaseModel):
    """A word that we do not know is refused with the one that was meant."""

    model_config = ConfigDict(
        frozen=True, strict=True, hide_input_in_errors=True, allow_inf_nan=False, json_schema_extra=_CLOSED
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: object, info: ValidationInfo) -> object:
        if not isinstance(given, Mapping):
            return given
        words = cast("Mapping[str, object]", given)
        unknown = next((word for word in words if word not in cls.model_fields), None)
        if unknown is None:
            return words
        if info.context == STORED:
            return {word: value for word, value in words.items() if word in cls.model_fields}
        near = get_close_matches(unknown[:64], cls.model_fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(cls.model_fields)}"
        raise ValueError(f"there is no {unknown[:64]!r} here: {hint}")


class LimitsDocument(_Part):
    """Of one agent. What is null has no limit."""

    rate_per_second: Annotated[float, Field(ge=0.00001, le=1_000_000)] | None = optional(
        "Jobs a second, in the long run. To stop an agent, set `max_queued` to 0."
    )
    burst: Annotated[int, Field(ge=1, le=LARGEST)] | None = optional(
        "Jobs at once after a quiet time; without it, those of a second."
    )
    max_queued: Count | None = optional("At so many waiting jobs no more are taken in.")
    resume_queued: Count | None = optional("Until they are down to this.")
    max_running: Count | None = optional("So many run at a time; more wait.")
    gpu_seconds_per_day: Annotated[float, Field(ge=0, le=1e12)] | None = optional("Of a day in UTC.")
    max_leased_mb: Memory | None = optional("GPU memory in leases.")
    resume_leased_mb: Memory | None = optional("No more until it is down to this.")

    def limits(self) -> AgentLimits:
        return AgentLimits(**self.model_dump())


class GatesDocument(_Part):
    """For all jobs but those of the pool for CPUs."""

    gpu_memory_high_pct: Annotated[float, Field(gt=0, le=100)] | None = optional(
        "Above this share of all GPU memory no GPU job is taken in for a time."
    )
    gpu_memory_hold_seconds: Annotated[float, Field(gt=0, le=86_400)] = 30.0
    queue_high: Annotated[int, Field(ge=1, le=LARGEST)] | None = optional(
        "At so many jobs in the queue no more are taken in."
    )
    queue_low: Count | None = optional("Until they are down to this.")
    oldest_high_seconds: Span | None = optional("When a job has waited so long, no more are taken in.")
    oldest_low_seconds: Span | None = optional("Until the oldest has waited less.")

    def gates(self) -> Gates:
        return Gates(**core_fields(self))


class PolicyDocument(_Part):
    default: LimitsDocument = Field(
        default_factory=LimitsDocument, description="For every agent that has no limits of its own."
    )
    agents: dict[Named, LimitsDocument] = Field(
        default_factory=dict[str, LimitsDocument],
        max_length=MOST_NAMED,
        description="By the agent's name. They stand in the place of `default`, all of them.",
    )
    gates: GatesDocument = Field(default_factory=GatesDocument)
    cpu_pool: PoolName | None = optional("Where jobs that allow it go when GPUs are short.")
    cheaper_pools: dict[PoolName, PoolName] = Field(
        default_factory=dict[str, str], max_length=MOST_NAMED, description="Where jobs of a pool go instead."
    )
    fallback_max_queued: Count | None = optional("So many jobs may wait in a pool that others are sent to.")
    concurrency: dict[Key, Annotated[int, Field(ge=1, le=LARGEST)]] = Field(
        default_factory=dict[str, int], max_length=MOST_NAMED, description="Jobs of a key that run at a time."
    )
    default_concurrency: Annotated[int, Field(ge=1, le=LARGEST)] = Field(
        default=1, description="For a key that is not named."
    )
    fair: bool = Field(default=True, description="Agents that wait in one pool are served in turn.")

    def policy(self, version: int = 0) -> ControlPolicy:
        return ControlPolicy(
            version=version,
            default=self.default.limits(),
            agents={agent: each.limits() for agent, each in self.agents.items()},
            gates=self.gates.gates(),
            **core_fields(self, "default", "agents", "gates"),
        )


class PolicyIn(Request):
    policy: PolicyDocument = Field(description="All of it: what is left out is as at the beginning.")
    note: Annotated[str, Field(max_length=255)] = Field(default="", description="Why, for the history.")
    base_version: Annotated[int, Field(ge=0, le=2_147_483_647)] | None = optional(
        "The version that this was made from; refused when it is not current any more."
    )


class ChangeOut(Reply):
    path: str
    old: Any
    new: Any


class PolicyOut(Reply):
    version: int = Field(description="0 is what holds before anybody has set anything.")
    policy: PolicyDocument
    created_at: datetime | None
    by: str | None
    note: str


class EditionOut(PolicyOut):
    changes: tuple[ChangeOut, ...] = Field(description="From the version before.")


class HistoryOut(Reply):
    versions: tuple[EditionOut, ...]
    next: int | None = Field(description="`after` for the next page.")


def stored(text: str) -> PolicyDocument:
    """One that was let in before. A newer version may have said more, and is not stopped for that."""
    try:
        return PolicyDocument.model_validate_json(text, context=STORED)
    except ValidationError as error:
        raise StoreMisconfigured(f"the stored policy cannot be read: {_faults(error)}") from error


def written(document: Mapping[str, Any]) -> PolicyDocument:
    """One that a person has written. `InvalidRequest` names the place and the rule."""
    try:
        return PolicyDocument.model_validate(document)
    except ValidationError as error:
        raise InvalidRequest(f"the policy is not as it must be: {_faults(error)}") from error


def _faults(error: ValidationError) -> str:
    """Where and why."""
    found = error.errors(include_url=False, include_input=False)[:20]
    return "; ".join(f"{'.'.join(str(step)[:64] for step in each['loc'])}: {each['msg']}" for each in found)


class ScopeIn(Request):
    """One pool, one type of job, or everything."""

    scope: str | None = Field(
        default=None, max_length=160, description="`all`, `pool:NAME` or `type:NAME`, instead of the others."
    )
    pool: Annotated[str, name("pool_id")] | None = None
    type: Annotated[str, name("type")] | None = None
    queue: Annotated[str, name("type")] | None = optional("Another word for `type`.")

    def meant(self) -> str:
        given = [each for each in (self.scope, self.pool, self.type, self.queue) if each is not None]
        if len(given) > 1:
            raise InvalidRequest("more than one of scope, pool, type and queue was given: use one at a time")
        if self.scope is None:
            return scope_of(pool=self.pool, kind=self.type if self.type is not None else self.queue)
        match self.scope.partition(":"):
            case ["pool", ":", named]:
                return scope_of(pool=named)
            case ["type", ":", named]:
                return scope_of(kind=named)
            case [only, "", _] if only == ALL:
                return ALL
            case _:
                raise InvalidRequest(f"scope is {self.scope!r}: it must be all, pool:NAME or type:NAME")


class PauseIn(ScopeIn):
    reason: ReasonText = ""
    seconds: Duration | None = optional("After so long it goes on by itself.")


class DrainIn(Request):
    reason: ReasonText = ""


class PauseOut(Reply):
    scope: str
    kind: str
    reason: str
    actor: str
    since: datetime
    until: datetime | None = None


class ResumedOut(Reply):
    scope: str
    resumed: bool = Field(description="Whether it was paused.")


class PausesOut(Reply):
    """What is paused, and what still runs."""

    holds: tuple[PauseOut, ...]
    jobs_held: int = Field(description="Jobs that workers have claimed.")
    workers: dict[str, int] = Field(description="Workers that are alive, by status.")
