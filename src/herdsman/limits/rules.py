"""A bucket of tokens: each job takes one, and they come back at a steady rate up to a brim."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum

from herdsman.errors import HerdsmanError, InvalidRequest, Overloaded, TooMany
from herdsman.ids import PoolId
from herdsman.jobs.model import NewJob
from herdsman.jobs.rules import LONGEST, check_name
from herdsman.limits.policy import AgentLimits, ControlPolicy, Gates
from herdsman.states import WorkerState

SET_BACK = timedelta(minutes=1)
"""A clock that is further back than this was set back; less is another transaction that got the lock first."""
_ALMOST = 1e-6
"""What floating point may lose on the way; of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    tokens: float
    """Below zero when jobs were put off: they have their tokens in advance."""
    filled_at: datetime


def refilled(bucket: Bucket, rate: float, brim: int, now: datetime) -> Bucket:
    """As full as it is now. In any span of time no more tokens come back than `rate` gives (T2).

    A clock that was set back gives nothing for the time that it repeats, and goes on from there.
    """
    if now <= bucket.filled_at:
        back = bucket.filled_at - now > SET_BACK
        return Bucket(tokens=min(bucket.tokens, brim), filled_at=now if back else bucket.filled_at)
    gained = (now - bucket.filled_at).total_seconds() * rate
    return Bucket(tokens=min(float(brim), bucket.tokens + gained), filled_at=now)


def wait_for(bucket: Bucket, rate: float, tokens: int) -> timedelta:
    """Until so many are there; zero when they are."""
    lacking = tokens - bucket.tokens
    return timedelta(0) if lacking <= _ALMOST else timedelta(seconds=lacking / rate)


LATELY = timedelta(seconds=60)
"""How old a measurement of a GPU may be and still say something."""


class Limit(StrEnum):
    """What was reached: a stable word, in answers, on jobs and in metrics."""

    RATE = "rate_limited"
    QUEUED = "queue_quota"
    GPU_SECONDS = "gpu_seconds_quota"
    GPU_MEMORY = "gpu_memory_gate"
    DEPTH = "queue_depth_gate"
    OLDEST = "oldest_gate"


GATES = (Limit.GPU_MEMORY, Limit.DEPTH, Limit.OLDEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """One gate that is closed."""

    until: datetime | None = None
    """None where only the queue itself can open it."""
    detail: str = ""


Closed = Mapping[Limit, Shut]
"""The gates that are closed; one that is not in it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the gates look at. The pool for CPUs is left out: it is where jobs go when a gate is closed."""

    now: datetime
    depth: int = 0
    oldest: timedelta | None = None
    gpu_used_mb: int = 0
    gpu_total_mb: int = 0
    """Of the GPUs that were measured lately; 0 where nobody has measured any."""


def stays_shut(*, shut: bool, value: float, high: float, low: float | None) -> bool:
    """Closed from `high` on, and once closed until the value is down to `low`; without that, below `high`."""
    if value >= high:
        return True
    return shut and low is not None and value > low


def turned(gates: Gates, seen: Load, before: Closed) -> Closed:
    """The gates as they must be now."""
    return dict(_all(gates, seen, before))


def _all(gates: Gates, seen: Load, before: Closed) -> Iterator[tuple[Limit, Shut]]:
    if gates.gpu_memory_high_pct is not None and (shut := _memory(gates, seen, before)) is not None:
        yield Limit.GPU_MEMORY, shut
    if gates.queue_high is not None and stays_shut(
        shut=Limit.DEPTH in before, value=seen.depth, high=gates.queue_high, low=gates.queue_low
    ):
        yield Limit.DEPTH, Shut(detail=f"the queue has reached {gates.queue_high} jobs")
    if gates.oldest_high is not None and stays_shut(
        shut=Limit.OLDEST in before,
        value=(seen.oldest or timedelta(0)).total_seconds(),
        high=gates.oldest_high.total_seconds(),
        low=None if gates.oldest_low is None else gates.oldest_low.total_seconds(),
    ):
        yield Limit.OLDEST, Shut(detail=f"jobs have waited for {gates.oldest_high}")


def _memory(gates: Gates, seen: Load, before: Closed) -> Shut | None:
    """Held for a time, counted from the last look that found too much in use."""
    assert gates.gpu_memory_high_pct is not None
    last = before.get(Limit.GPU_MEMORY)
    share = 100 * seen.gpu_used_mb / seen.gpu_total_mb if seen.gpu_total_mb else 0.0
    if share > gates.gpu_memory_high_pct:
        until = seen.now + gates.gpu_memory_hold
        # A little later is no news: what did not change need not be written.
        known = last is not None and last.until is not None and until - last.until < gates.gpu_memory_hold / 4
        detail = f"{share:.0f} % of the GPU memory is in use"
        return last if known else Shut(until=until, detail=detail)
    # One that lies further ahead than a hold was written before the clock was set back, or the hold was shortened.
    held = last is not None and last.until is not None and last.until <= seen.now + gates.gpu_memory_hold
    return last if held and last is not None and last.until is not None and last.until > seen.now else None


SOON = timedelta(seconds=5)
"""When to ask again where nobody knows how long it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Defer:
    until: datetime
    code: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reroute:
    pool: PoolId
    code: Limit
    unpaid: bool = False
    """It was sent there since its agent has no token left, so it costs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    code: Limit
    retry_after: timedelta
    detail: str

    def error(self) -> HerdsmanError:
        kind = Overloaded if self.code in GATES else TooMany
        return kind(self.detail, retry_after=self.retry_after, code=self.code.value)


Verdict = Accept | Defer | Reroute | Reject


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One agent, as far as its limits need it."""

    bucket: Bucket | None = None
    """As full as it is now; None where its rate has no limit."""
    queued: int = 0
    shut: bool = False
    """It had too many jobs waiting, and they are not down to the lower mark yet."""
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    now: datetime
    agents: Mapping[str, Standing]
    closed: Closed
    waiting: Mapping[PoolId, int]
    """In the pools that jobs are sent to instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    """A limit that is in a job's way."""

    code: Limit
    wait: timedelta | None
    """None where nobody knows: such a limit is not waited for."""
    detail: str


def judge(job: NewJob, policy: ControlPolicy, seen: Seen) -> Verdict:
    hits = tuple(_hits(job, policy, seen))
    if not hits:
        return Accept()
    return _deferred(job, hits, seen) or _rerouted(job, hits, policy, seen) or _rejected(hits)


def judge_all(
    jobs: Sequence[NewJob], policy: ControlPolicy, seen: Seen
) -> tuple[Sequence[Verdict] | HerdsmanError, Seen]:
    """All of them or, when one is refused, none. Comes with what is to be seen afterwards."""
    verdicts: list[Verdict] = []
    left = seen
    for job in jobs:
        verdict = judge(job, policy, left)
        if isinstance(verdict, Reject):
            return _whole(jobs, job, verdict, policy, seen), seen
        verdicts.append(verdict)
        left = after(job, verdict, policy, left)
    return verdicts, left


def after(job: NewJob, verdict: Verdict, policy: ControlPolicy, seen: Seen) -> Seen:
    """The next one is judged with this one let in."""
    limits, standing = policy.limits_of(job.agent), seen.agents.get(job.agent)
    waiting, agents = dict(seen.waiting), dict(seen.agents)
    pool = verdict.pool if isinstance(verdict, Reroute) else job.pool
    if pool in waiting:
        waiting[pool] += 1
    if standing is not None:
        free = isinstance(verdict, Reroute) and verdict.unpaid
        agents[job.agent] = _charged(standing, limits, tokens=0 if free else 1)
    return replace(seen, agents=agents, waiting=waiting)


def fallbacks(job: NewJob, policy: ControlPolicy) -> tuple[PoolId, ...]:
    """Where else it may go, the first one first."""
    cheaper = policy.cheaper_pools.get(job.pool)
    listed = (cheaper, policy.cpu_pool if job.allow_cpu else None)
    return tuple(pool for pool in dict.fromkeys(listed) if pool is not None and pool != job.pool)


def _hits(job: NewJob, policy: ControlPolicy, seen: Seen) -> Iterator[_Hit]:
    standing = seen.agents.get(job.agent)
    if standing is not None:
        yield from _agent_hits(job, policy.limits_of(job.agent), standing, policy, seen)
    # The pool for CPUs is the way out of a closed gate, so the gates do not stand before it.
    if job.pool != policy.cpu_pool:
        for limit, shut in seen.closed.items():
            wait = None if shut.until is None else max(timedelta(0), shut.until - seen.now)
            yield _Hit(code=limit, wait=wait, detail=f"no more jobs are taken in: {shut.detail}")


def _agent_hits(
    job: NewJob, limits: AgentLimits, standing: Standing, policy: ControlPolicy, seen: Seen
) -> Iterator[_Hit]:
    agent, rate = job.agent, limits.rate_per_second
    if rate is not None and standing.bucket is not None and (wait := wait_for(standing.bucket, rate, 1)):
        said = f"agent {agent!r} may submit {rate:g} jobs a second"
        yield _Hit(code=Limit.RATE, wait=wait, detail=said)
    if limits.max_queued is not None and standing.shut:
        said = f"agent {agent!r} has {standing.queued} jobs waiting, the limit is {limits.max_queued}"
        yield _Hit(code=Limit.QUEUED, wait=None, detail=said)
    most = limits.gpu_seconds_per_day
    if most is not None and standing.gpu_seconds >= most and job.pool != policy.cpu_pool:
        said = f"agent {agent!r} has used {standing.gpu_seconds:.0f} GPU seconds today, the limit is {most:g}"
        yield _Hit(
            code=Limit.GPU_SECONDS,
            wait=datetime.combine(seen.now.astimezone(UTC).date() + timedelta(days=1), time(0), UTC)
            - seen.now,
            detail=said,
        )


def _deferred(job: NewJob, hits: Sequence[_Hit], seen: Seen) -> Defer | None:
    """Only what surely ends is waited for, and only as long as the job allows."""
    waits = [hit.wait for hit in hits if hit.wait is not None]
    if job.max_defer is None or len(waits) < len(hits) or max(waits) > job.max_defer:
        return None
    return Defer(until=seen.now + max(waits), code=_worst(hits).code)


def _rerouted(job: NewJob, hits: Sequence[_Hit], policy: ControlPolicy, seen: Seen) -> Reroute | None:
    codes = {hit.code for hit in hits}
    most = policy.fallback_max_queued
    for pool in fallbacks(job, policy):
        full = most is not None and seen.waiting.get(pool, 0) >= most
        if not full and not codes & _HELD_BACK_FROM[pool == policy.cpu_pool]:
            return Reroute(pool=pool, code=_worst(hits).code, unpaid=Limit.RATE in codes)
    return None


# Another pool is no way round the number of jobs that an agent may have waiting; and only one without GPUs is a way
# round what GPUs lack.
_HELD_BACK_FROM = {
    True: frozenset({Limit.QUEUED}),
    False: frozenset({Limit.QUEUED, Limit.GPU_SECONDS, Limit.GPU_MEMORY}),
}


def _rejected(hits: Sequence[_Hit]) -> Reject:
    worst = _worst(hits)
    wait = SOON if worst.wait is None else worst.wait
    return Reject(code=worst.code, retry_after=wait, detail=f"{worst.detail}: ask again in {_told(wait)} s")


def _worst(hits: Sequence[_Hit]) -> _Hit:
    return max(hits, key=lambda hit: SOON if hit.wait is None else hit.wait)


def _whole(
    jobs: Sequence[NewJob], job: NewJob, verdict: Reject, policy: ControlPolicy, seen: Seen
) -> HerdsmanError:
    """A request is let in whole, so it waits for as many tokens as it has jobs; some can wait for ever."""
    limits, count = policy.limits_of(job.agent), sum(each.agent == job.agent for each in jobs)
    if verdict.code is Limit.QUEUED and limits.max_queued is not None and count > max(1, limits.max_queued):
        return InvalidRequest(
            f"{count} jobs of agent {job.agent!r} were sent at once and {limits.max_queued} may wait: send them in parts"
        )
    standing, rate = seen.agents.get(job.agent), limits.rate_per_second
    if verdict.code is not Limit.RATE or rate is None or standing is None or standing.bucket is None:
        return verdict.error()
    if count > limits.most_at_once:
        return InvalidRequest(
            f"{count} jobs of agent {job.agent!r} were sent at once, and never more than {limits.most_at_once} are"
            " taken in: send them in parts"
        )
    wait = wait_for(standing.bucket, rate, count)
    detail = f"agent {job.agent!r} may submit {rate:g} jobs a second: ask again in {_told(wait)} s"
    return replace(verdict, retry_after=wait, detail=detail).error()


def _charged(standing: Standing, limits: AgentLimits, *, tokens: int) -> Standing:
    bucket, queued = standing.bucket, standing.queued + 1
    if bucket is not None:
        bucket = replace(bucket, tokens=bucket.tokens - tokens)
    return replace(
        standing, bucket=bucket, queued=queued, shut=over_queued(limits, queued, shut=standing.shut)
    )


def over_queued(limits: AgentLimits, queued: int, *, shut: bool) -> bool:
    if limits.max_queued is None:
        return False
    return stays_shut(shut=shut, value=queued, high=limits.max_queued, low=limits.resume_queued)


def _told(wait: timedelta) -> int:
    return max(1, math.ceil(wait.total_seconds()))


ALL = "all"


class HoldKind(StrEnum):
    PAUSE = "pause"
    """No jobs are given out; workers stay."""
    DRAIN = "drain"
    """Workers finish what they hold and leave as well, and none are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    scope: str
    """`all`, `pool:NAME` or `type:NAME`."""
    kind: HoldKind
    why: str
    actor: str
    since: datetime
    until: datetime | None = None
    """None: until somebody resumes it."""


@dataclass(frozen=True, slots=True)
class Holding:
    """All that is held at one moment."""

    holds: tuple[Hold, ...] = ()

    @property
    def drained(self) -> str | None:
        """Why all workers are let go; None when they are not."""
        return next((each.why for each in self.holds if each.kind is HoldKind.DRAIN), None)

    @property
    def types(self) -> frozenset[str]:
        return frozenset(each.scope[5:] for each in self.holds if each.scope.startswith("type:"))

    def pauses(self, pool: str) -> bool:
        return any(each.scope in (ALL, f"pool:{pool}") for each in self.holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stillness:
    """What is held, and what goes on all the same."""

    holding: Holding
    jobs_held: int
    workers: Mapping[WorkerState, int]
    """Those that live."""

    @property
    def still(self) -> bool:
        return self.jobs_held == 0 and not any(self.workers.values())


def scope_of(*, pool: str | None = None, kind: str | None = None) -> str:
    """What is meant by a pool, by a type of job, or by neither of them."""
    if pool is not None and kind is not None:
        raise InvalidRequest("a pool and a type were both given: hold one of them, or each by itself")
    if pool is not None:
        check_name("pool", pool, LONGEST["pool_id"])
        return f"pool:{pool}"
    if kind is not None:
        check_name("type", kind)
        return f"type:{kind}"
    return ALL
