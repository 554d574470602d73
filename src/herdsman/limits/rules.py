"""Rules of admission, on plain values: token buckets, gates, the verdict on a job, and pauses."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum

from herdsman.errors import HerdsmanError, InvalidRequest, Overloaded, TooMany
from herdsman.ids import LONGEST, PoolId, check_name
from herdsman.jobs.model import NewJob
from herdsman.limits.control_policy import AgentLimits, ControlPolicy, Gates

SET_BACK = timedelta(minutes=1)
"""A clock that is further back than this was set back; less is another transaction that got the lock first."""
_ALMOST = 1e-6
"""What floating point may lose on the way; of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    tokens: float
    """Below zero when jobs were put off: they have their tokens in advance."""
    filled_at: datetime


def refilled(bucket: Bucket, rate: float, capacity: int, now: datetime) -> Bucket:
    """As full as it is now. In any span of time no more tokens come back than `rate` gives (T2).

    A clock that was set back gives nothing for the time that it repeats, and goes on from there.
    """
    if now <= bucket.filled_at:
        back = bucket.filled_at - now > SET_BACK
        return Bucket(tokens=min(bucket.tokens, capacity), filled_at=now if back else bucket.filled_at)
    gained = (now - bucket.filled_at).total_seconds() * rate
    return Bucket(tokens=min(float(capacity), bucket.tokens + gained), filled_at=now)


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
class ClosedGate:
    until: datetime | None = None
    """None where only the queue itself can open it."""
    detail: str = ""


Closed = Mapping[Limit, ClosedGate]
"""The gates that are closed; one that is not in it is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the gates depend on. The pool for CPUs is left out: it is where jobs go when a gate is closed."""

    now: datetime
    depth: int = 0
    oldest: timedelta | None = None
    gpu_used_mb: int = 0
    gpu_total_mb: int = 0
    """Of the GPUs that were measured lately; 0 where nobody has measured any."""


def stays_closed(*, shut: bool, value: float, high: float, low: float | None) -> bool:
    """Closed from `high` on, and once closed until the value is down to `low`; without that, below `high`."""
    if value >= high:
        return True
    return shut and low is not None and value > low


def gates_now(gates: Gates, load: Load, before: Closed) -> Closed:
    closed: dict[Limit, ClosedGate] = {}
    if gates.gpu_memory_high_pct is not None and (gate := _memory_gate(gates, load, before)) is not None:
        closed[Limit.GPU_MEMORY] = gate
    if gates.queue_high is not None and stays_closed(
        shut=Limit.DEPTH in before, value=load.depth, high=gates.queue_high, low=gates.queue_low
    ):
        closed[Limit.DEPTH] = ClosedGate(detail=f"the queue has reached {gates.queue_high} jobs")
    if gates.oldest_high is not None and stays_closed(
        shut=Limit.OLDEST in before,
        value=(load.oldest or timedelta(0)).total_seconds(),
        high=gates.oldest_high.total_seconds(),
        low=None if gates.oldest_low is None else gates.oldest_low.total_seconds(),
    ):
        closed[Limit.OLDEST] = ClosedGate(detail=f"jobs have waited for {gates.oldest_high}")
    return closed


def _memory_gate(gates: Gates, load: Load, before: Closed) -> ClosedGate | None:
    """Closed for a time, counted from the last measurement that found too much in use."""
    assert gates.gpu_memory_high_pct is not None
    last = before.get(Limit.GPU_MEMORY)
    until = None if last is None else last.until
    share = 100 * load.gpu_used_mb / load.gpu_total_mb if load.gpu_total_mb else 0.0
    latest = load.now + gates.gpu_memory_hold
    if share > gates.gpu_memory_high_pct:
        # A little later is no change, and is not written.
        if until is not None and latest - until < gates.gpu_memory_hold / 4:
            return last
        return ClosedGate(until=latest, detail=f"{share:.0f} % of the GPU memory is in use")
    # One that lies further ahead was written before the clock was set back, or the time was shortened.
    return last if until is not None and load.now < until <= latest else None


SOON = timedelta(seconds=5)
"""When to ask again where it is not known how long it takes."""


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
class AgentUsage:
    """What one agent uses of its limits."""

    bucket: Bucket | None = None
    """As full as it is now; None where its rate has no limit."""
    queued: int = 0
    shut: bool = False
    """It had too many jobs waiting, and they are not down to the lower mark yet."""
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionState:
    now: datetime
    agents: Mapping[str, AgentUsage]
    closed: Closed
    waiting: Mapping[PoolId, int]
    """In the pools that jobs are sent to instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hit:
    code: Limit
    wait: timedelta | None
    """None where it is not known: such a limit is not waited for."""
    detail: str


def judge(job: NewJob, policy: ControlPolicy, state: AdmissionState) -> Verdict:
    hits = tuple(_hits(job, policy, state))
    if not hits:
        return Accept()
    worst = max(hits, key=lambda hit: SOON if hit.wait is None else hit.wait)
    waits = [hit.wait for hit in hits if hit.wait is not None]
    # Only what surely ends is waited for, and only as long as the job allows.
    if job.max_defer is not None and len(waits) == len(hits) and max(waits) <= job.max_defer:
        return Defer(until=state.now + max(waits), code=worst.code)
    codes, most = {hit.code for hit in hits}, policy.fallback_max_queued
    for pool in fallbacks(job, policy):
        full = most is not None and state.waiting.get(pool, 0) >= most
        if not full and not codes & _NO_WAY_ROUND[pool == policy.cpu_pool]:
            return Reroute(pool=pool, code=worst.code, unpaid=Limit.RATE in codes)
    wait = SOON if worst.wait is None else worst.wait
    return Reject(code=worst.code, retry_after=wait, detail=f"{worst.detail}: ask again in {_whole_s(wait)} s")


# By whether the other pool is the one for CPUs. Another pool is no way round the number of jobs that an agent may have
# waiting; and only one without GPUs is a way round what GPUs lack.
_NO_WAY_ROUND = {True: frozenset({Limit.QUEUED}), False: frozenset({Limit.QUEUED, Limit.GPU_SECONDS, Limit.GPU_MEMORY})}


def judge_all(
    jobs: Sequence[NewJob], policy: ControlPolicy, state: AdmissionState
) -> tuple[Sequence[Verdict] | HerdsmanError, AdmissionState]:
    """All of them or, when one is refused, none. Comes with the state afterwards."""
    verdicts: list[Verdict] = []
    left = state
    for job in jobs:
        verdict = judge(job, policy, left)
        if isinstance(verdict, Reject):
            return _whole(jobs, job, verdict, policy, state), state
        verdicts.append(verdict)
        left = after(job, verdict, policy, left)
    return verdicts, left


def after(job: NewJob, verdict: Verdict, policy: ControlPolicy, state: AdmissionState) -> AdmissionState:
    """The state with this job admitted, for the next one."""
    limits, usage = policy.limits_of(job.agent), state.agents.get(job.agent)
    waiting, agents = dict(state.waiting), dict(state.agents)
    pool = verdict.pool if isinstance(verdict, Reroute) else job.pool
    if pool in waiting:
        waiting[pool] += 1
    if usage is not None:
        bucket, queued = usage.bucket, usage.queued + 1
        if bucket is not None and not (isinstance(verdict, Reroute) and verdict.unpaid):
            bucket = replace(bucket, tokens=bucket.tokens - 1)
        shut = over_queued(limits, queued, shut=usage.shut)
        agents[job.agent] = replace(usage, bucket=bucket, queued=queued, shut=shut)
    return replace(state, agents=agents, waiting=waiting)


def fallbacks(job: NewJob, policy: ControlPolicy) -> tuple[PoolId, ...]:
    """Where else it may go, the first one first."""
    cheaper = policy.cheaper_pools.get(job.pool)
    listed = (cheaper, policy.cpu_pool if job.allow_cpu else None)
    return tuple(pool for pool in dict.fromkeys(listed) if pool is not None and pool != job.pool)


def _hits(job: NewJob, policy: ControlPolicy, state: AdmissionState) -> Iterator[_Hit]:
    agent, limits, usage = job.agent, policy.limits_of(job.agent), state.agents.get(job.agent)
    on_gpu = job.pool != policy.cpu_pool
    if usage is not None:
        rate = limits.rate_per_second
        if rate is not None and usage.bucket is not None and (wait := wait_for(usage.bucket, rate, 1)):
            said = f"agent {agent!r} may submit {rate:g} jobs a second"
            yield _Hit(code=Limit.RATE, wait=wait, detail=said)
        if limits.max_queued is not None and usage.shut:
            said = f"agent {agent!r} has {usage.queued} jobs waiting, the limit is {limits.max_queued}"
            yield _Hit(code=Limit.QUEUED, wait=None, detail=said)
        most = limits.gpu_seconds_per_day
        if most is not None and usage.gpu_seconds >= most and on_gpu:
            said = f"agent {agent!r} has used {usage.gpu_seconds:.0f} GPU seconds today, the limit is {most:g}"
            tomorrow = state.now.astimezone(UTC).date() + timedelta(days=1)
            wait = datetime.combine(tomorrow, time(0), UTC) - state.now
            yield _Hit(code=Limit.GPU_SECONDS, wait=wait, detail=said)
    # The pool for CPUs is the way out of a closed gate, so the gates do not apply to it.
    for limit, gate in state.closed.items() if on_gpu else ():
        wait = None if gate.until is None else max(timedelta(0), gate.until - state.now)
        yield _Hit(code=limit, wait=wait, detail=f"no more jobs are taken in: {gate.detail}")


def _whole(
    jobs: Sequence[NewJob], job: NewJob, verdict: Reject, policy: ControlPolicy, state: AdmissionState
) -> HerdsmanError:
    """A request is let in whole, so it waits for as many tokens as it has jobs; some can wait for ever."""
    limits, count = policy.limits_of(job.agent), sum(each.agent == job.agent for each in jobs)
    if verdict.code is Limit.QUEUED and limits.max_queued is not None and count > max(1, limits.max_queued):
        return InvalidRequest(
            f"{count} jobs of agent {job.agent!r} were sent at once and {limits.max_queued} may wait: send them in parts"
        )
    usage, rate = state.agents.get(job.agent), limits.rate_per_second
    if verdict.code is not Limit.RATE or rate is None or usage is None or usage.bucket is None:
        return verdict.error()
    if count > limits.most_at_once:
        return InvalidRequest(
            f"{count} jobs of agent {job.agent!r} were sent at once, and never more than {limits.most_at_once} are"
            " taken in: send them in parts"
        )
    wait = wait_for(usage.bucket, rate, count)
    detail = f"agent {job.agent!r} may submit {rate:g} jobs a second: ask again in {_whole_s(wait)} s"
    return replace(verdict, retry_after=wait, detail=detail).error()


def over_queued(limits: AgentLimits, queued: int, *, shut: bool) -> bool:
    if limits.max_queued is None:
        return False
    return stays_closed(shut=shut, value=queued, high=limits.max_queued, low=limits.resume_queued)


def _whole_s(wait: timedelta) -> int:
    return max(1, math.ceil(wait.total_seconds()))


ALL = "all"


class PauseKind(StrEnum):
    PAUSE = "pause"
    """No jobs are claimed; workers stay."""
    DRAIN = "drain"
    """Workers also finish their jobs and leave, and none are added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    scope: str
    """`all`, `pool:NAME` or `type:NAME`."""
    kind: PauseKind
    reason: str
    actor: str
    since: datetime
    until: datetime | None = None
    """None: until somebody resumes it."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """All that are in force at one moment."""

    active: tuple[Pause, ...] = ()

    @property
    def drained(self) -> str | None:
        """Why all workers are drained; None when they are not."""
        return next((each.reason for each in self.active if each.kind is PauseKind.DRAIN), None)

    @property
    def types(self) -> frozenset[str]:
        return frozenset(each.scope[5:] for each in self.active if each.scope.startswith("type:"))

    def covers(self, pool: str) -> bool:
        return any(each.scope in (ALL, f"pool:{pool}") for each in self.active)


def scope_of(*, pool: str | None = None, kind: str | None = None) -> str:
    """What is meant by a pool, by a type of job, or by neither of them."""
    if pool is not None and kind is not None:
        raise InvalidRequest("a pool and a type were both given: pause one of them, or each by itself")
    if pool is not None:
        check_name("pool", pool, LONGEST["pool_id"])
        return f"pool:{pool}"
    if kind is not None:
        check_name("type", kind)
        return f"type:{kind}"
    return ALL
