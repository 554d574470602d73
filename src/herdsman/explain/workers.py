"""A waiting job, and the workers that could take it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.explain import sql
from herdsman.explain.rules import Block, Blocker, NextWorker, next_worker, told
from herdsman.fleet import history_sql, leader_sql, workers_sql
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.history_sql import Decided, Step
from herdsman.fleet.observe import observe_without_provider
from herdsman.fleet.phases.health import lack_of
from herdsman.fleet.phases.scale import FULL_MACHINE
from herdsman.fleet.snapshot import PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import PoolId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import Job
from herdsman.states import WorkerState

SILENT = timedelta(minutes=1)
"""A worker that has not beaten for so long does not ask for work either."""


@dataclass(frozen=True, kw_only=True)
class Around:
    tx: Tx
    services: Services
    job: Job

    @cached_property
    def seen(self) -> Snapshot:
        return observe_without_provider(self.tx, self.services.fleet())

    @cached_property
    def pool(self) -> PoolSnapshot | None:
        """None where the control loop keeps no such pool."""
        return next((each for each in self.seen.pools if each.id == self.job.pool), None)

    @cached_property
    def active(self) -> Sequence[WorkerSnapshot]:
        return tuple(self.seen.of(self.job.pool, WorkerState.ACTIVE))

    @cached_property
    def starting(self) -> Sequence[WorkerSnapshot]:
        return tuple(self.seen.of(self.job.pool, WorkerState.SPAWNING))

    @cached_property
    def named_types(self) -> dict[str, frozenset[str]]:
        """Of all pools; a worker that is not in it may take anything."""
        return dict(workers_sql.types_of_living(self.tx))

    @cached_property
    def unfit(self) -> dict[str, str]:
        """By worker, of all pools, why it takes no jobs of this type at the moment."""
        told = workers_sql.unfit_of_living(self.tx)
        return {worker: said[self.job.type] for worker, said in told.items() if self.job.type in said}

    def takes(self, worker: WorkerSnapshot) -> bool:
        named = self.named_types.get(worker.id)
        return (named is None or self.job.type in named) and worker.id not in self.unfit

    @cached_property
    def able(self) -> Sequence[WorkerSnapshot]:
        """The active ones that take its type."""
        return tuple(each for each in self.active if self.takes(each))

    @cached_property
    def free(self) -> Sequence[WorkerSnapshot]:
        return tuple(each for each in self.able if each.job is None)

    @cached_property
    def asking(self) -> Sequence[WorkerSnapshot]:
        """Those of the free ones that were heard of lately."""
        return tuple(
            each
            for each in self.free
            if not (each.last_heartbeat is not None and self.tx.now() - each.last_heartbeat > SILENT)
        )

    @cached_property
    def ahead(self) -> int:
        return jobs_sql.ahead_of(self.tx, self.job.job_id)


STEPS = 20
READ = 500
"""Steps that are read so that equal ones can be told as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleStory:
    """A decision, and how often it was the same."""

    last: datetime
    since: datetime
    times: int
    action: str
    code: str
    why: str
    numbers: dict[str, Any]
    done: bool
    said: str


def told_of(tx: Tx, pool: PoolId) -> tuple[CycleStory, ...]:
    return told_about(tx, lambda step: pool in (step.get("pool"), step.get("about")))


def told_about(tx: Tx, about: Callable[[Step], bool]) -> tuple[CycleStory, ...]:
    """Newest first. Equal decisions in a row are one, with its first and its last time."""
    return _told(history_sql.latest_steps(tx, about, READ))


def _told(found: Sequence[Decided]) -> tuple[CycleStory, ...]:
    told: list[CycleStory] = []
    for each in found:
        step = each.step
        now = CycleStory(
            last=each.at,
            since=each.at,
            times=1,
            action=step["action"],
            code=step["code"],
            why=step["why"],
            numbers=step["numbers"],
            done=step["done"],
            said=step["said"],
        )
        if told and _same(told[-1], now):
            told[-1] = replace(told[-1], since=each.at, times=told[-1].times + 1)
        else:
            told.append(now)
    return tuple(told[:STEPS])


def _same(one: CycleStory, other: CycleStory) -> bool:
    return (one.action, one.code, one.done) == (other.action, other.code, other.done)


LONG = timedelta(minutes=5)
"""A leader whose last cycle is older than this does not keep the fleet."""
_START = "start a control plane: herdsman up"


def no_worker(here: Around) -> tuple[Blocker, NextWorker | None]:
    """Why none is free, with what the pool would do next where the control loop keeps it."""
    workers = _workers(here)
    pool = here.pool
    if pool is None or (pool.life is not None and not pool.life.declared and not here.starting):
        return _nobody_keeps(here, workers), None
    following = next_worker(here.seen, pool.id)
    by_hand = pool.life is not None and pool.life.by_hand
    for blocker in () if by_hand and not here.starting else _leaderless(here, workers):
        return blocker, following
    if here.starting:
        return _starting(here, pool, workers), following
    if following.blocked_by is not None:
        return _blocked(here, pool, workers, following, following.blocked_by), following
    return _growing(here, workers, following), following


def _workers(here: Around) -> str:
    pool, count = here.job.pool, len(here.able)
    if not here.active:
        return f"pool {pool} has no active worker"
    if not here.able:
        return f"no active worker of pool {pool} takes {here.job.type}"
    taking = "" if count == len(here.active) else f" that take {here.job.type}"
    if count == 1:
        return f"the only active worker of pool {pool}{taking} holds a job"
    return f"all {count} active workers of pool {pool}{taking} hold a job"


def _nobody_keeps(here: Around, workers: str) -> Blocker:
    pool = here.job.pool
    if here.able:
        return Blocker(code=Block.BUSY, text=workers, ends="it starts when one of them is free")
    return Blocker(
        code=Block.NOBODY_KEEPS,
        text=f"{workers}, and nobody keeps such a pool",
        since=here.job.run_at,
        ends=f"make it with: herdsman pool create {pool}, or start a worker: herdsman worker --pool {pool}",
    )


def _leaderless(here: Around, workers: str) -> Iterator[Blocker]:
    term, now = leader_sql.find_leader(here.tx), here.tx.now()
    if term is None:
        text = f"{workers}, and no control plane has ever led here: none is added"
        yield Blocker(code=Block.NO_LEADER, text=text, ends=_START)
    elif term.expires_at <= now:
        text = f"{workers}, and nobody leads: none is added"
        yield Blocker(code=Block.NO_LEADER, text=text, since=term.expires_at, ends=_START)
    elif (last := sql.last_cycle(here.tx)) is not None and now - max(last.at, term.acquired_at) > LONG:
        text = f"{workers}, and {term.holder} leads but has ended no cycle: none is added"
        yield Blocker(
            code=Block.NO_CYCLE,
            text=text,
            since=last.at,
            ends=f"look at the log of {term.holder}, or restart it",
        )


def _starting(here: Around, pool: PoolSnapshot, workers: str) -> Blocker:
    count, first = len(here.starting), min(each.created_at for each in here.starting)
    if pool.policy.require_gpu and all(each.gpu_seen is False for each in here.starting):
        lack = lack_of(here.starting[0], pool.policy, here.seen.now)
        return Blocker(
            code=Block.NO_GPU,
            text=f"{workers}, and {here.starting[0].id} is none yet: {lack}",
            since=first,
            ends=f"start a worker on a machine with a GPU, or set REQUIRE_GPU to false for pool {pool.id}",
        )
    took = sql.boots(here.tx, here.job.pool)
    usual = "" if took is None else f"; half of the last {took.count} took {_span(took.usual)} or less"
    coming = "a worker is starting" if count == 1 else f"{count} workers are starting"
    return Blocker(
        code=Block.STARTING,
        text=f"{workers}, and {coming}",
        since=first,
        ends=f"it starts when one is ready{usual}",
    )


def _blocked(
    here: Around, pool: PoolSnapshot, workers: str, following: NextWorker, why: ActionReason
) -> Blocker:
    recorded = (each.since for each in told_of(here.tx, pool.id) if each.code == why.code)
    free = "it starts when one of them is free, or " if here.able else ""
    return Blocker(
        code=why.code,
        text=f"{workers}, and none is added, {blocked(following)}",
        since=next(recorded, None),
        ends=f"{free}{_remedy(here, pool, why)}",
    )


def _remedy(here: Around, pool: PoolSnapshot, why: ActionReason) -> str:
    now, policy = here.seen.now, pool.policy
    match why.code:
        case Code.CEILING if policy.machine_is_full:
            return "rent machines (PROVIDER); MAX_ACTIVE_GPUS alone adds no GPU"
        case Code.CEILING | Code.KILL_SWITCH:
            return "raise MAX_ACTIVE_GPUS"
        case Code.BREAKER_OPEN:
            minutes = _span(policy.failure_window)
            return f"when no more workers have failed for {minutes} (FAILURE_WINDOW_MINUTES); see: herdsman workers"
        case Code.BUDGET_SPENT:
            return (
                f"when the next {_spent_span(why)} begins, or raise BUDGET_PER_{_spent_span(why).upper()}_USD"
            )
        case Code.PROVIDER_WAITS:
            return f"the provider is asked again at {told(pool.wait_until or now)}"
        case Code.PROVIDER_REJECTED:
            return f"mend that at the provider, then: herdsman resume --pool {pool.id}"
        case Code.SERVED_BY_HAND:
            return f"start one: herdsman worker --pool {pool.id}"
        case Code.ENOUGH if pool.last_scaled_at is not None:
            return f"the next one may come at {told(pool.last_scaled_at + policy.min_scaling_interval)}"
        case _:
            return f"see: herdsman why pool {pool.id}"


def _spent_span(why: ActionReason) -> str:
    return "day" if "this day" in why.text else "hour"


def _growing(here: Around, workers: str, following: NextWorker) -> Blocker:
    free = "it starts when one of them is free, or " if here.able else ""
    at, now = following.at_queued, following.queued
    if at is None:
        return Blocker(
            code=Block.BUSY if here.able else Block.NO_WORKER,
            text=f"{workers}, and no queue, however long, adds one",
            ends=f"{free}see: herdsman why pool {here.job.pool}",
        )
    if at <= now:
        soon = "the next cycle would spawn a worker"
        return Blocker(code=Block.BUSY if here.able else Block.NO_WORKER, text=workers, ends=f"{free}{soon}")
    return Blocker(code=Block.BUSY, text=workers, ends=f"{free}one more comes at {at} queued; now {now}")


def blocked(following: NextWorker) -> str:
    """What stands in the way, with the setting that says so."""
    why = following.blocked_by
    assert why is not None
    setting = _SETTINGS.get(why.code)
    limit = next(
        (why.numbers[name] for name in ("max", "max_rate", "limit_usd") if name in why.numbers), None
    )
    if why.text == FULL_MACHINE:
        setting = "GPUs"
    named = setting if limit is None or setting is None else f"{setting}={limit}"
    return f"blocked by {named or why.code}: {why.text}"


_SETTINGS = {
    "CEILING": "MAX_ACTIVE_GPUS",
    "BREAKER_OPEN": "MAX_WORKER_FAILURE_RATE",
    "BUDGET_SPENT": "the budget",
    "ENOUGH": "MIN_SCALING_INTERVAL_SEC",
}


def _span(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
