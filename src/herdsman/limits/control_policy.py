"""What people set while everything runs: limits of agents, gates for all of them, and who is served in which turn."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from herdsman.errors import InvalidRequest
from herdsman.ids import PoolId


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """Each is None where there is no limit."""

    rate_per_second: float | None = None
    burst: int | None = None
    """How many jobs may come at once after a quiet time."""
    max_queued: int | None = None
    """At so many waiting jobs no more are taken in, until they are down to `resume_queued`."""
    resume_queued: int | None = None
    max_running: int | None = None
    gpu_seconds_per_day: float | None = None
    max_leased_mb: int | None = None
    """At so much leased GPU memory no more is leased, until it is down to `resume_leased_mb`."""
    resume_leased_mb: int | None = None

    @property
    def most_at_once(self) -> int:
        """As many jobs as a second gives, where nobody has said how many."""
        return self.burst or max(1, math.ceil(self.rate_per_second or 0))

    @property
    def bound_submission(self) -> bool:
        """Whether anything has to be looked at before a job of the agent is taken in."""
        return (self.rate_per_second, self.max_queued, self.gpu_seconds_per_day) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    gpu_memory_high_pct: float | None = None
    """GPU memory in use, of all that there is, above which no GPU job is taken in for `gpu_memory_hold`."""
    gpu_memory_hold: timedelta = timedelta(seconds=30)
    queue_high: int | None = None
    queue_low: int | None = None
    oldest_high: timedelta | None = None
    """The longest wait of a job above which no more are taken in, until it is below `oldest_low`."""
    oldest_low: timedelta | None = None

    @property
    def any(self) -> bool:
        return (self.gpu_memory_high_pct, self.queue_high, self.oldest_high) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPolicy:
    version: int = 0
    """0 is what holds before anybody has set anything."""
    default: AgentLimits = AgentLimits()
    agents: Mapping[str, AgentLimits] = field(default_factory=dict[str, AgentLimits])
    gates: Gates = Gates()
    cpu_pool: PoolId | None = None
    """Where a job that allows it goes when GPUs are short."""
    cheaper_pools: Mapping[PoolId, PoolId] = field(default_factory=dict[PoolId, PoolId])
    """Where jobs of a pool go when it is full, before the pool for CPUs is thought of."""
    fallback_max_queued: int | None = None
    """So many jobs may wait in a pool that others are sent to."""
    concurrency: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many jobs of a key run at a time."""
    default_concurrency: int = 1
    fair: bool = True
    """Agents that wait in one pool are served in turn; without this, whoever came first."""

    def limits_of(self, agent: str) -> AgentLimits:
        return self.agents.get(agent, self.default)

    def limits_submission(self, agents: Iterable[str]) -> bool:
        """Whether anything has to be looked at before jobs of these agents are taken in."""
        return self.gates.any or any(self.limits_of(agent).bound_submission for agent in agents)

    @property
    def limits_running(self) -> bool:
        """Whether any agent may only run so many jobs at a time."""
        return any(each.max_running is not None for each in (self.default, *self.agents.values()))

    def full_agents(self, running: Mapping[str, int]) -> set[str]:
        limits = {agent: self.limits_of(agent).max_running for agent in {*running, *self.agents}}
        return {agent for agent, most in limits.items() if most is not None and running.get(agent, 0) >= most}

    def most_of(self, key: str) -> int:
        return self.concurrency.get(key, self.default_concurrency)

    @property
    def counts_gpu_seconds(self) -> bool:
        every = (self.default, *self.agents.values())
        return any(limits.gpu_seconds_per_day is not None for limits in every)


def check_policy(policy: ControlPolicy) -> None:
    """Numbers that do not fit together are refused, with the place that they stand at."""
    gates = policy.gates
    wrong = [
        *_of_limits("default", policy.default),
        *(said for agent, limits in policy.agents.items() for said in _of_limits(f"agents.{agent}", limits)),
        *_marks("gates.queue_low", gates.queue_low, "queue_high", gates.queue_high),
        *_marks("gates.oldest_low_seconds", gates.oldest_low, "oldest_high_seconds", gates.oldest_high),
        *(
            f"cheaper_pools.{pool} is {cheaper!r}: a pool is no way out of itself"
            for pool, cheaper in policy.cheaper_pools.items()
            if pool == cheaper
        ),
    ]
    if wrong:
        raise InvalidRequest(wrong[0])


def _of_limits(where: str, limits: AgentLimits) -> Iterator[str]:
    if limits.burst is not None and limits.rate_per_second is None:
        yield f"{where}.burst is {limits.burst} and there is no rate_per_second: set both, or only the rate"
    yield from _marks(f"{where}.resume_queued", limits.resume_queued, "max_queued", limits.max_queued)
    yield from _marks(f"{where}.resume_leased_mb", limits.resume_leased_mb, "max_leased_mb", limits.max_leased_mb)


Mark = int | timedelta | None


def _marks(where: str, low: Mark, upper: str, high: Mark) -> Iterator[str]:
    if low is None:
        return
    if high is None:
        yield f"{where} is {low} and there is no {upper}: the lower mark means nothing without the upper one"
    elif low >= high:  # pyright: ignore[reportOperatorIssue]  (both are of one kind)
        yield f"{where} is {low} and {upper} is {high}: the lower mark must be lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    path: str
    old: object
    """None where there was nothing."""
    new: object


def changes(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Change, ...]:
    """By their paths. A value that is None is one that is not there."""
    before, now = dict(_leaves(old)), dict(_leaves(new))
    paths = sorted(before.keys() | now.keys())
    return tuple(
        Change(path=path, old=before.get(path), new=now.get(path))
        for path in paths
        if before.get(path) != now.get(path)
    )


def _leaves(document: Mapping[str, object], at: str = "") -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        path = f"{at}.{key}" if at else key
        if isinstance(value, Mapping):
            inner = cast("Mapping[str, object]", value)
            yield from _leaves(inner, path)
            # An entry without any limit is one all the same: it frees an agent from those of the others.
            if at and not any(each is not None for each in inner.values()):
                yield path, {}
        elif value is not None:
            yield path, value


def with_value(document: Mapping[str, object], path: str, value: object) -> dict[str, object]:
    """The document with another value at a path as `changes` writes it; None takes it away."""
    top, _, rest = path.partition(".")
    name, _, last = rest.rpartition(".")
    known = document.get(top)
    steps = (top, rest) if rest else (top,)
    # The name of an agent, a pool or a key may hold dots itself.
    if top == "agents" and name and not (isinstance(known, Mapping) and rest in known):
        steps = (top, name, last)
    found = here = cast("dict[str, Any]", dict(document))
    for step in steps[:-1]:
        inner = here.get(step)
        here[step] = dict(cast("Mapping[str, object]", inner)) if isinstance(inner, Mapping) else {}
        here = here[step]
    if value is None:
        here.pop(steps[-1], None)
    else:
        here[steps[-1]] = value
    return found
