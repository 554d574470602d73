"""Why a job waits, or how it ended."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from statistics import median

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.explain import sql
from herdsman.explain.rules import NextWorker, WaitCode, next_worker, utc
from herdsman.explain.wire import RepeatedDecisionOut, WaitReason
from herdsman.fleet import history_sql, leader_sql, stats_sql, workers_sql
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.history_sql import Step
from herdsman.fleet.observe import observe_without_provider
from herdsman.fleet.phases.health import lack_of
from herdsman.fleet.phases.scale import FULL_MACHINE
from herdsman.fleet.snapshot import PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.jobs import claim_sql
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import Attempt, AuditEntry, Job
from herdsman.leases.rules import LeaseMode
from herdsman.limits import sql as limits_sql
from herdsman.limits.control_policy import ControlPolicy
from herdsman.limits.rules import ALL, Limit, PauseKind
from herdsman.pools import sql as pools_sql
from herdsman.pools.rules import OPEN
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.text import spoken

SILENT = timedelta(minutes=1)
"""A worker without a heartbeat for this long does not ask for jobs either."""
NOT_DUE = (JobStatus.SCHEDULED, JobStatus.FAILED)
FINAL = (WaitCode.PAUSED, WaitCode.DRAINED, WaitCode.POOL_CLOSED, WaitCode.UNKNOWN_TYPE)
"""More workers would not help."""
LASTING = (
    WaitCode.NO_LEADER,
    WaitCode.NO_CYCLE,
    WaitCode.NOBODY_KEEPS,
    Code.SERVED_BY_HAND,
    Code.KILL_SWITCH,
    Code.PROVIDER_REJECTED,
)
"""A pool without workers stays without them until a person acts."""


@dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job that has not started, with the workers that could take it."""

    tx: Tx
    services: Services
    job: Job

    @cached_property
    def snapshot(self) -> Snapshot:
        return observe_without_provider(self.tx, self.services.fleet())

    @cached_property
    def pool(self) -> PoolSnapshot | None:
        """None where the control loop does not manage the pool."""
        return next((each for each in self.snapshot.pools if each.id == self.job.pool), None)

    @cached_property
    def active(self) -> Sequence[WorkerSnapshot]:
        return tuple(self.snapshot.of(self.job.pool, WorkerStatus.ACTIVE))

    @cached_property
    def starting(self) -> Sequence[WorkerSnapshot]:
        return tuple(self.snapshot.of(self.job.pool, WorkerStatus.SPAWNING))

    @cached_property
    def named_types(self) -> dict[str, frozenset[str]]:
        """By worker, of all pools; a worker that is not in it may take anything."""
        return dict(workers_sql.types_of_living(self.tx))

    @cached_property
    def unfit(self) -> dict[str, str]:
        """By worker, of all pools, why it takes no jobs of this type at the moment."""
        unfit = workers_sql.unfit_of_living(self.tx)
        return {worker: reasons[self.job.type] for worker, reasons in unfit.items() if self.job.type in reasons}

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
        """The free ones with a recent heartbeat."""
        return tuple(
            each for each in self.free if each.last_heartbeat is None or self.tx.now() - each.last_heartbeat <= SILENT
        )

    @cached_property
    def ahead(self) -> int:
        return jobs_sql.ahead_of(self.tx, self.job.job_id)


def queued_reasons(waiting: WaitingJob) -> tuple[list[WaitReason], NextWorker | None]:
    """Of a queued job, in the order in which they must go away; with its pool's next worker where none is free."""
    reasons = [*_reasons(waiting)]
    if waiting.free or any(each.code in FINAL for each in reasons):
        return reasons, None
    no_worker, following = _no_worker(waiting)
    return [*reasons, no_worker], following


def unpredictable(waiting: WaitingJob) -> WaitReason | None:
    """Why nobody can say when the job starts. Jobs ahead of it, busy workers and a worker that starts can be estimated;
    a limit, a pause, or workers that nobody adds cannot."""
    if waiting.job.status in NOT_DUE:
        # What may have passed when it is due is left aside: limits that are reached, a provider without capacity.
        due = not_due(waiting.job, waiting.tx.now(), waiting.services.rules())
        found = [each for each in due if each.code == WaitCode.NOT_STAGED]
        found += [each for each in _reasons(waiting) if each.code in FINAL]
        if not found and not waiting.able:
            no_worker, _ = _no_worker(waiting)
            found = [no_worker] if no_worker.code in LASTING else []
        return found[0] if found else None
    for reason in _reasons(waiting):
        return reason
    if waiting.able:
        return None  # each of them is free after its current job
    no_worker, following = _no_worker(waiting)
    grows = no_worker.code == WaitCode.NO_WORKER and following is not None and following.at_queued is not None
    return None if grows or no_worker.code == WaitCode.STARTING else no_worker


LATE = timedelta(minutes=1)
"""A control plane queues a job within a second of its due time."""


def not_due(job: Job, now: datetime, rules: ControlPolicy) -> Sequence[WaitReason]:
    """Why a job is not queued yet."""
    found: list[WaitReason] = []
    if now - job.run_at > LATE:
        text = "the job is due, but no control plane is there to queue it"
        ends = "start one: herdsman up"
        found.append(WaitReason(code=WaitCode.NOT_STAGED, text=text, since=job.run_at, ends=ends))
    at = utc(job.run_at)
    if job.status is JobStatus.FAILED:
        text = f"attempt {job.attempts} of {job.max_attempts} failed, and the next one starts at {at}"
        ends = f"to retry now: herdsman retry {job.job_id}"
        return *found, WaitReason(code=WaitCode.BACKOFF, text=text, since=job.updated_at, ends=ends)
    if job.admission is None:
        text, ends = f"the job is scheduled for {at}", "it is queued then"
        return *found, WaitReason(code=WaitCode.DELAYED, text=text, since=job.created_at, ends=ends)
    limits, limit = rules.limits_of(job.agent), f"agent {job.agent} had reached it"
    match job.admission:
        case Limit.RATE if limits.rate_per_second is not None:
            limit = f"agent {job.agent} may submit {limits.rate_per_second:g} jobs a second"
        case Limit.GPU_SECONDS if limits.gpu_seconds_per_day is not None:
            limit = f"agent {job.agent} has used its {limits.gpu_seconds_per_day:g} GPU seconds of the day"
        case Limit.GPU_MEMORY:
            limit = "too much GPU memory was in use"
        case _:
            pass
    text = f"limit {job.admission} deferred the job until {at}: {limit}"
    ends = "it is queued then; to see the limits: herdsman policy show"
    return *found, WaitReason(code=WaitCode.PUT_OFF, text=text, since=job.created_at, ends=ends)


MOST_NAMED = 5
_PLACE_ENDS = "the job starts when one of them ends; to see the limit: herdsman policy show"


def _reasons(waiting: WaitingJob) -> Iterator[WaitReason]:
    """Other than that no worker is free."""
    yield from _stopped(waiting)
    yield from _no_type(waiting)
    yield from _full(waiting)
    yield from _free_but_unusable(waiting)


def _stopped(waiting: WaitingJob) -> Iterator[WaitReason]:
    job = waiting.job
    options = {ALL: "", f"pool:{job.pool}": f" --pool {job.pool}", f"type:{job.type}": f" --type {job.type}"}
    for pause in limits_sql.active_pauses(waiting.tx).active:
        if pause.scope not in options:
            continue
        what = "everything" if pause.scope == ALL else pause.scope.replace(":", " ")
        drained, command = pause.kind is PauseKind.DRAIN, f"herdsman resume{options[pause.scope]}"
        yield WaitReason(
            code=WaitCode.DRAINED if drained else WaitCode.PAUSED,
            text=f"{pause.actor} {'drained' if drained else 'paused'} {what} ({pause.reason})",
            since=pause.since,
            ends=f"resume with: {command}"
            if pause.until is None
            else f"it resumes at {utc(pause.until)}, or with: {command}",
        )
    pool = pools_sql.find_pool(waiting.tx, job.pool)
    if pool is not None and pool.status not in OPEN:
        yield WaitReason(
            code=WaitCode.POOL_CLOSED,
            text=f"pool {pool.pool_id} is {pool.status} ({pool.reason}) and takes no jobs",
            since=pool.updated_at,
            ends=f"start it again: herdsman pool create {pool.pool_id}",
        )


def _no_type(waiting: WaitingJob) -> Iterator[WaitReason]:
    """No worker takes the type, since its service is away or since none has a handler for it."""
    job, there = waiting.job, [*waiting.active, *waiting.starting]
    if not there or any(waiting.takes(each) for each in there):
        return
    unfit = [each.id for each in there if each.id in waiting.unfit]
    if unfit:
        takes = f"and {len(unfit) - 1} more take" if len(unfit) > 1 else "takes"
        yield WaitReason(
            code=WaitCode.SERVICE_UNFIT,
            text=f"worker {unfit[0]} {takes} no jobs of type {job.type}: {waiting.unfit[unfit[0]]}",
            ends=f"the job starts when the service takes jobs again; see: herdsman why worker {unfit[0]}",
        )
        return
    # All that are there have said what they take: one that has said nothing yet may take anything.
    known = sorted({kind for each in there for kind in waiting.named_types[each.id]})
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    living = (WorkerStatus.ACTIVE, WorkerStatus.SPAWNING)
    others = {
        each.pool
        for each in waiting.snapshot.workers
        if each.status in living and job.type in waiting.named_types.get(each.id, frozenset())
    }
    elsewhere = f"; workers of pool {min(others)} do" if others else ""
    option = "" if job.pool == DEFAULT_POOL else f" --pool {job.pool}"
    yield WaitReason(
        code=WaitCode.UNKNOWN_TYPE,
        text=f"no worker of pool {job.pool} takes type {job.type}:"
        f" they take {', '.join(known[:MOST_NAMED])}{more}{elsewhere}",
        since=job.run_at,
        ends=f"start one that does: herdsman worker{option} --module MODULE (or --exec {job.type}=COMMAND)",
    )


def _full(waiting: WaitingJob) -> Iterator[WaitReason]:
    agent, key, rules = waiting.job.agent, waiting.job.concurrency_key, waiting.services.rules()
    most = rules.limits_of(agent).max_running
    if most is not None and (running := claim_sql.running_of(waiting.tx, "agent", agent).get(agent, 0)) >= most:
        text = f"agent {agent} already runs {running} of {most} jobs (max_running)"
        yield WaitReason(code=WaitCode.AGENT_FULL, text=text, ends=_PLACE_ENDS)
    if key is not None:
        most = rules.most_of(key)
        if (running := claim_sql.running_of(waiting.tx, "concurrency_key", key).get(key, 0)) >= most:
            text = f"concurrency key {key} already runs {running} of {most} jobs"
            yield WaitReason(code=WaitCode.KEY_FULL, text=text, ends=_PLACE_ENDS)


def _free_but_unusable(waiting: WaitingJob) -> Iterator[WaitReason]:
    job, tx, asking = waiting.job, waiting.tx, waiting.asking
    if waiting.free and not asking:
        last = max(waiting.free, key=lambda each: each.last_heartbeat or each.created_at)
        yield WaitReason(
            code=WaitCode.SILENT_WORKERS,
            text=f"no free worker of pool {job.pool} asks for jobs: worker {last.id} sent the last heartbeat",
            since=last.last_heartbeat,
            ends=f"see: herdsman why worker {last.id}",
        )
    needs_gpu = job.gpu_memory_mb is not None and not job.allow_cpu
    if needs_gpu and waiting.able and all(each.gpu_seen is False for each in waiting.able):
        yield WaitReason(
            code=WaitCode.NO_GPU,
            text=f"the job needs {job.gpu_memory_mb} MB of GPU memory, and no worker of pool {job.pool} that takes"
            f" {job.type} has a GPU",
            since=job.run_at,
            ends="start a worker on a machine with a GPU, or submit the job with --allow-cpu",
        )
    leasing = waiting.services.leasing
    if asking and leasing.mode is LeaseMode.ON:
        narrow = sql.too_narrow(tx, [each.id for each in asking], job.gpu_memory_mb, leasing)
        if narrow is not None:
            best = max(narrow, key=lambda each: each.free_mb)
            memory = f"{job.gpu_memory_mb} MB of GPU memory"
            wanted = "a GPU of its own" if job.gpu_memory_mb is None else memory
            yield WaitReason(
                code=WaitCode.GPU_MEMORY,
                text=f"no free worker has {wanted}: worker {best.worker_id} has the most, {best.free_mb} MB"
                f" ({best.reason})",
                ends="the job starts when leases end and their memory is free; see: herdsman leases, herdsman gpus",
            )
    if asking and job.model is not None:
        until = job.run_at + waiting.services.policy.model_wait
        holders = sql.holders_of(tx, job.pool, job.model)
        if holders and until > tx.now() and not any(each.id in holders for each in asking):
            yield WaitReason(
                code=WaitCode.MODEL,
                text=f"worker {min(holders)}, which has model {job.model} loaded, is busy",
                since=job.run_at,
                ends=f"any free worker takes the job at {utc(until)} (MAX_TASK_WAIT_MINUTES)",
            )


LONG = timedelta(minutes=5)
"""A leader whose last cycle is older than this does not manage the fleet."""
_START = "start a control plane: herdsman up"


def _no_worker(waiting: WaitingJob) -> tuple[WaitReason, NextWorker | None]:
    """Why none is free, with what the pool would do next where the control loop manages it."""
    job, pool, workers = waiting.job, waiting.pool, _workers(waiting)
    when_free = "the job starts when one of them is free"
    if pool is None or (pool.life is not None and not pool.life.declared and not waiting.starting):
        if waiting.able:
            return WaitReason(code=WaitCode.BUSY, text=workers, ends=when_free), None
        start = f"create it: herdsman pool create {job.pool}, or start a worker: herdsman worker --pool {job.pool}"
        text = f"{workers}, and the control loop does not manage this pool"
        return WaitReason(code=WaitCode.NOBODY_KEEPS, text=text, since=job.run_at, ends=start), None
    following = next_worker(waiting.snapshot, pool.id)
    manual = pool.life is not None and pool.life.by_hand
    if waiting.starting or not manual:
        for reason in _leaderless(waiting, workers):
            return reason, following
    if waiting.starting:
        return _starting(waiting, pool, workers), following
    free, blocker = f"{when_free}, or " if waiting.able else "", following.blocked_by
    if blocker is not None:
        recorded = (each.since for each in decisions_of_pool(waiting.tx, pool.id) if each.code == blocker.code)
        return WaitReason(
            code=blocker.code,
            text=f"{workers}, and none is added ({blocked(following)})",
            since=next(recorded, job.run_at),  # no cycle may have seen it yet
            ends=f"{free}{_remedy(waiting.snapshot, pool, blocker)}",
        ), following
    at, code = following.at_queued, WaitCode.BUSY if waiting.able else WaitCode.NO_WORKER
    if at is None:
        text = f"{workers}, and no queue, however long, adds one"
        ends = f"{free}see: herdsman why pool {job.pool}"
        return WaitReason(code=code, text=text, ends=ends), following
    if at <= following.queued:
        return WaitReason(code=code, text=workers, ends=f"{free}the next cycle adds a worker"), following
    ends = f"{free}one more is added at {at} queued jobs; now {following.queued}"
    return WaitReason(code=WaitCode.BUSY, text=workers, ends=ends), following


def _workers(waiting: WaitingJob) -> str:
    pool, kind, count = waiting.job.pool, waiting.job.type, len(waiting.able)
    if not waiting.active:
        return f"pool {pool} has no active worker"
    if not waiting.able:
        return f"no active worker of pool {pool} takes {kind}"
    taking = "" if count == len(waiting.active) else f" that take {kind}"
    return (
        f"the only worker of pool {pool}{taking.replace('take', 'takes')} is busy"
        if count == 1
        else f"all {count} workers of pool {pool}{taking} are busy"
    )


def _leaderless(waiting: WaitingJob, workers: str) -> Iterator[WaitReason]:
    term, now = leader_sql.find_leader(waiting.tx), waiting.tx.now()
    if term is None:
        text = f"{workers}, and no control plane has ever run here to add one"
        yield WaitReason(code=WaitCode.NO_LEADER, text=text, ends=_START)
    elif term.expires_at <= now:
        text = f"{workers}, and no control plane leads to add one"
        yield WaitReason(code=WaitCode.NO_LEADER, text=text, since=term.expires_at, ends=_START)
    elif (last := sql.last_cycle(waiting.tx)) is not None and now - max(last[0], term.acquired_at) > LONG:
        text = f"{workers}, and the leader {term.holder} finishes no cycle to add one"
        ends = f"look at the log of {term.holder}, or restart it"
        yield WaitReason(code=WaitCode.NO_CYCLE, text=text, since=last[0], ends=ends)


def _starting(waiting: WaitingJob, pool: PoolSnapshot, workers: str) -> WaitReason:
    starting = waiting.starting
    first = min(each.created_at for each in starting)
    if pool.policy.require_gpu and all(each.gpu_seen is False for each in starting):
        lack = lack_of(starting[0], pool.policy, waiting.snapshot.now)
        return WaitReason(
            code=WaitCode.NO_GPU,
            text=f"{workers}, and worker {starting[0].id} cannot become active: {lack}",
            since=first,
            ends=f"start a worker on a machine with a GPU, or set REQUIRE_GPU to false for pool {pool.id}",
        )
    took = stats_sql.boot_times(waiting.tx, pool.id)
    usual = ""
    if took.own and took.seconds:
        half = _span(timedelta(seconds=median(took.seconds)))
        usual = f"; half of the last {len(took.seconds)} starts took {half} or less"
    coming = "a worker is starting" if len(starting) == 1 else f"{len(starting)} workers are starting"
    text, ends = f"{workers}, and {coming}", f"the job starts when one is ready{usual}"
    return WaitReason(code=WaitCode.STARTING, text=text, since=first, ends=ends)


def _remedy(snapshot: Snapshot, pool: PoolSnapshot, reason: ActionReason) -> str:
    policy = pool.policy
    match reason.code:
        case Code.CEILING if policy.machine_is_full:
            return "rent machines (PROVIDER); MAX_ACTIVE_GPUS alone adds no GPU"
        case Code.CEILING | Code.KILL_SWITCH:
            return "raise MAX_ACTIVE_GPUS"
        case Code.BREAKER_OPEN:
            window = _span(policy.failure_window)
            return f"when no more workers have failed for {window} (FAILURE_WINDOW_MINUTES); see: herdsman workers"
        case Code.BUDGET_SPENT:
            span = "day" if "this day" in reason.text else "hour"
            return f"when the next {span} begins, or raise BUDGET_PER_{span.upper()}_USD"
        case Code.PROVIDER_WAITS:
            return f"the provider is asked again at {utc(pool.wait_until or snapshot.now)}"
        case Code.PROVIDER_REJECTED:
            return f"fix that at the provider, then: herdsman resume --pool {pool.id}"
        case Code.SERVED_BY_HAND:
            return f"start one: herdsman worker --pool {pool.id}"
        case Code.ENOUGH if pool.last_scaled_at is not None:
            return f"the next one may come at {utc(pool.last_scaled_at + policy.min_scaling_interval)}"
        case _:
            return f"see: herdsman why pool {pool.id}"


_SETTINGS = {
    "CEILING": "MAX_ACTIVE_GPUS",
    "BREAKER_OPEN": "MAX_WORKER_FAILURE_RATE",
    "BUDGET_SPENT": "the budget",
    "ENOUGH": "MIN_SCALING_INTERVAL_SEC",
}


def blocked(following: NextWorker) -> str:
    """What prevents the next worker, with the setting that says so."""
    reason = following.blocked_by
    assert reason is not None
    setting = "GPUs" if reason.text == FULL_MACHINE else _SETTINGS.get(reason.code)
    limit = next((reason.numbers[key] for key in ("max", "max_rate", "limit_usd") if key in reason.numbers), None)
    named = setting if limit is None or setting is None else f"{setting}={limit}"
    return f"blocked by {named or reason.code}: {reason.text}"


def _span(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def outcome_of(job: Job, tried: Sequence[Attempt], history: Sequence[AuditEntry]) -> Iterator[str]:
    """How it ended, then where its time went. Attempts are kept for a while only; without them, less is known."""
    at = utc(job.finished_at or job.updated_at)
    first, last = (tried[0], tried[-1]) if tried else (None, None)
    match job.status:
        case JobStatus.DONE if job.saved_gpu is not None:
            saved = f"{job.saved_gpu.total_seconds():.1f} GPU seconds saved"
            yield f"Completed with a result that the service already had: {saved}"
        case JobStatus.DONE:
            by = f" by worker {last.worker_id}" if last else ""
            yield f"Completed on attempt {job.attempts}{by} at {at}"
        case JobStatus.CANCELLED:
            # Who asked for it; the worker that obeyed comes later.
            asked = [each.actor for each in history if each.reason == Reason.CANCEL_REQUESTED]
            canceller = asked[-1] if asked else history[-1].actor if history else "somebody"
            when = "before it started" if last is None else "while it waited"
            if last is not None and last.outcome == JobStatus.CANCELLED:
                when = f"while worker {last.worker_id} ran it"
            yield f"Cancelled by {canceller} at {at}, {when}"
        case _:
            attempts = "1 attempt" if job.attempts == 1 else f"{job.attempts} attempts"
            by = f", the last by worker {last.worker_id}" if last else ""
            error = f": {job.last_error}" if job.last_error else ""
            yield f"Failed for good at {at} after {attempts}{by} ({str(job.reason).replace('_', ' ')}){error}"
    if first is None or last is None:
        return
    waited = f"Waited {_between(job.created_at, first.claimed_at)} for a worker"
    if last.ended_at is None:
        yield waited
        return
    ran = _between(last.started_at or last.claimed_at, last.ended_at)
    if len(tried) == 1:
        yield f"{waited}, then ran for {ran}"
    else:
        whole = _between(job.created_at, job.finished_at or last.ended_at)
        yield f"{waited}, ran for {ran} on the last attempt, and took {whole} in all"


def _between(begin: datetime, end: datetime) -> str:
    return spoken(max(0.0, (end - begin).total_seconds()))


MOST_SHOWN = 20
MOST_READ = 500
"""Decisions that are read so that equal ones can be counted."""


def decisions_of_pool(tx: Tx, pool: PoolId) -> tuple[RepeatedDecisionOut, ...]:
    return decisions_about(tx, lambda step: pool in (step.get("pool"), step.get("about")))


def decisions_about(tx: Tx, about: Callable[[Step], bool]) -> tuple[RepeatedDecisionOut, ...]:
    """Newest first. Equal decisions in a row are one, with its first and its last time."""
    found: list[RepeatedDecisionOut] = []
    for at, step in history_sql.latest_steps(tx, about, MOST_READ):
        last = found[-1] if found else None
        same = ("action", "code", "done")
        if last is not None and all(getattr(last, field) == step[field] for field in same):
            found[-1] = last.model_copy(update={"since": at, "times": last.times + 1})
        else:
            found.append(RepeatedDecisionOut(last=at, since=at, times=1, **step))
    return tuple(found[:MOST_SHOWN])
