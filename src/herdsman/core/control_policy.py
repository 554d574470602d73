"""What people set while everything runs: limits of agents, gates for all of them, and who is served in which turn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from herdsman.core.model import PoolId


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """They close for everybody."""

    gpu_memory_high_pct: float | None = None
    """GPU memory in use, of all that there is, above which no GPU job is taken in for `gpu_memory_hold`."""
    gpu_memory_hold: timedelta = timedelta(seconds=30)
    queue_high: int | None = None
    queue_low: int | None = None
    oldest_high: timedelta | None = None
    """The longest wait of a job above which no more are taken in, until it is below `oldest_low`."""
    oldest_low: timedelta | None = None


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

    def most_of(self, key: str) -> int:
        return self.concurrency.get(key, self.default_concurrency)
