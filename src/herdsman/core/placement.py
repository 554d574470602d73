"""Which waiting job a worker may take, and which of them it gets: agents take turns, and a model is served where it is
loaded.

The rule for models: a worker takes the first job that names no model, or one that it has loaded, or that has waited
for its model as long as it has to. Only when there is none it takes one whose model nobody has loaded. What another
worker has loaded waits for that one, but never longer than the bound. And who has just changed its model keeps it for
a while, as long as there are jobs for it: when everything waits too long, changing with each job would make it worse.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class WaitingJob(Protocol):
    """What of a job decides who may take it."""

    @property
    def type(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    @property
    def concurrency_key(self) -> str | None: ...
    @property
    def gpu_memory_mb(self) -> int | None: ...
    @property
    def allow_cpu(self) -> bool | int: ...
    @property
    def run_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True)
class Head:
    """The first of the jobs that wait for one model, or for none."""

    model: str | None
    place: int
    overdue: bool = False
    """It has waited for a worker with its model as long as it has to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a worker has loaded, and what others of its pool have."""

    here: Collection[str] = ()
    elsewhere: Collection[str] = ()
    settled: bool = True
    """Its last change is long enough ago for another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelector:
    """The jobs that a free worker may take. J13: while one of them waits, the worker is given one.

    `accepts` is the rule; `store/choosing.py` says the same in SQL, so that no look at the queue ends among jobs that
    cannot be taken.
    """

    types: Collection[str] = ()
    """Those that the worker runs; empty when it runs any."""
    not_types: Collection[str] = ()
    """Paused."""
    only_agents: Collection[str] | None = None
    """None where every agent may run jobs."""
    not_agents: Collection[str] = ()
    """They run as many jobs as they may."""
    not_keys: Collection[str] = ()
    """Of these concurrency keys as many jobs run as may."""
    room_mb: int | None = None
    """The worker has only so much of a GPU; None when nothing narrows it."""
    no_gpu: bool = False
    """The worker has none: what names the GPU memory that it needs must allow a CPU."""
    loaded: Loaded | None = None
    """None where models do not matter."""
    overdue_before: datetime | None = None
    """Who has waited since then waits for a worker with its model no longer."""

    def accepts(self, job: WaitingJob) -> bool:
        return (
            (not self.types or job.type in self.types)
            and job.type not in self.not_types
            and (self.only_agents is None or job.agent in self.only_agents)
            and job.agent not in self.not_agents
            and job.concurrency_key not in self.not_keys
            and (not self.no_gpu or job.gpu_memory_mb is None or bool(job.allow_cpu))
            and (
                self.room_mb is None or (job.gpu_memory_mb is not None and job.gpu_memory_mb <= self.room_mb)
            )
            and self._accepts_model(job)
        )

    def _accepts_model(self, job: WaitingJob) -> bool:
        loaded, bound = self.loaded, self.overdue_before
        if loaded is None or job.model is None or job.model in loaded.here:
            return True
        return job.model not in loaded.elsewhere or (bound is not None and job.run_at <= bound)


def best(heads: Sequence[Head], loaded: Loaded) -> Head | None:
    """The one that the worker takes."""
    suits = [head for head in heads if head.model is None or head.model in loaded.here]
    overdue = [head for head in heads if head.overdue]
    if loaded.settled:
        suits += overdue
    new = [head for head in heads if head.model not in loaded.elsewhere]
    return min(suits or [*new, *overdue], key=_place, default=None)


def _place(head: Head) -> int:
    return head.place


def shares(agents: Sequence[str], count: int) -> Mapping[str, int]:
    """How many of `count` jobs each agent gets, when they take turns in this order."""
    each, more = divmod(count, len(agents))
    dealt = {agent: each + (index < more) for index, agent in enumerate(agents)}
    return {agent: number for agent, number in dealt.items() if number}
