"""Where a job stands that does not wait in the queue: not yet, in somebody's hands, or at its end."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from herdsman.explain import sql
from herdsman.explain.rules import Block, Blocker, NextWorker, told
from herdsman.explain.workers import Around, no_worker
from herdsman.fleet.actions import Code
from herdsman.fleet.snapshot import SeenWorker
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs import claim_sql
from herdsman.jobs.model import Attempt, AuditEntry, Job
from herdsman.leases.rules import LeaseMode
from herdsman.limits import sql as limits_sql
from herdsman.limits.policy import ControlPolicy
from herdsman.limits.rules import ALL, Hold, HoldKind, Limit
from herdsman.pools import sql as pools_sql
from herdsman.pools.rules import OPEN
from herdsman.states import JobState, Reason, WorkerState
from herdsman.text import spoken

LATE = timedelta(minutes=1)
"""A job is queued within a second of its time, where a control plane runs."""


def not_yet(job: Job, now: datetime, rules: ControlPolicy) -> Sequence[Blocker]:
    """Why it is not even in the queue."""
    late = [_not_staged(job)] if now - job.run_at > LATE else []
    if job.state is JobState.FAILED:
        return *late, _backoff(job)
    return *late, _delayed(job) if job.admission is None else _put_off(job, rules)


def held(job: Job) -> str:
    until = "" if job.claim_expires_at is None else f" until {job.claim_expires_at:%H:%M:%S} UTC"
    return f"worker {job.worker_id} holds it{until}"


def let_in(job: Job) -> str | None:
    """What a limit at the door did to a job that waits in the queue by now."""
    if job.admission is None:
        return None
    return (
        f"it was let in under the limit {job.admission}: put off until it was due, or sent to pool {job.pool}"
    )


def _not_staged(job: Job) -> Blocker:
    return Blocker(
        code=Block.NOT_STAGED,
        text="its time has come and nobody has queued it: no control plane is there",
        since=job.run_at,
        ends="start one: herdsman up",
    )


def _delayed(job: Job) -> Blocker:
    return Blocker(
        code=Block.DELAYED,
        text=f"its time comes at {told(job.run_at)}",
        since=job.created_at,
        ends="it was submitted to run then, and is queued at that moment",
    )


def _put_off(job: Job, rules: ControlPolicy) -> Blocker:
    return Blocker(
        code=Block.PUT_OFF,
        text=f"it was put off until {told(job.run_at)} by the limit {job.admission}: {_limit(job, rules)}",
        since=job.created_at,
        ends="it is queued then; the limits: herdsman policy show",
    )


def _limit(job: Job, rules: ControlPolicy) -> str:
    limits = rules.limits_of(job.agent)
    match job.admission:
        case Limit.RATE if limits.rate_per_second is not None:
            return f"agent {job.agent} may submit {limits.rate_per_second:g} jobs a second"
        case Limit.GPU_SECONDS if limits.gpu_seconds_per_day is not None:
            return f"agent {job.agent} has used its {limits.gpu_seconds_per_day:g} GPU seconds of the day"
        case Limit.GPU_MEMORY:
            return "too much GPU memory was in use"
        case _:
            return f"agent {job.agent} had reached it"


def _backoff(job: Job) -> Blocker:
    return Blocker(
        code=Block.BACKOFF,
        text=f"it is tried again at {told(job.run_at)}: attempt {job.attempts} of {job.max_attempts} failed",
        since=job.updated_at,
        ends=f"or at once, with: herdsman retry {job.job_id}",
    )


def ended(job: Job, tried: Sequence[Attempt], history: Sequence[AuditEntry]) -> tuple[str, ...]:
    """What became of it, then where its time went. Attempts are kept for a while only: without them, less is said."""
    times = _times(job, tried)
    return (_outcome(job, tried, history), times) if times else (_outcome(job, tried, history),)


def _outcome(job: Job, tried: Sequence[Attempt], history: Sequence[AuditEntry]) -> str:
    at = told(job.finished_at or job.updated_at)
    match job.state:
        case JobState.DONE if job.saved_gpu is not None:
            spared = f"{job.saved_gpu.total_seconds():.1f} GPU seconds were saved"
            return f"its result had been made and was found at the service: {spared}"
        case JobState.DONE:
            return f"it was done at {at}{_by(tried)}, in {_attempts(job)}"
        case JobState.CANCELLED:
            # Who asked for it; the worker that obeyed comes later.
            asked = [each.actor for each in history if each.reason == Reason.CANCEL_REQUESTED]
            canceller = asked[-1] if asked else history[-1].actor if history else "somebody"
            return f"it was cancelled at {at} by {canceller}, {_meanwhile(tried)}"
        case _:
            error = f": {job.last_error}" if job.last_error else ""
            why = str(job.reason).replace("_", " ")
            return f"it was given up at {at} after {_attempts(job)}{_by(tried)} ({why}){error}"


def _meanwhile(tried: Sequence[Attempt]) -> str:
    if not tried:
        return "before it began"
    last = tried[-1]
    return (
        f"while worker {last.worker_id} ran it" if last.outcome == JobState.CANCELLED else "while it waited"
    )


def _by(tried: Sequence[Attempt]) -> str:
    return f" by worker {tried[-1].worker_id}" if tried else ""


def _attempts(job: Job) -> str:
    return "1 attempt" if job.attempts == 1 else f"{job.attempts} attempts"


def _times(job: Job, tried: Sequence[Attempt]) -> str:
    if not tried:
        return ""
    first, last = tried[0], tried[-1]
    waited = f"it waited {_between(job.created_at, first.claimed_at)} until a worker took it"
    if last.ended_at is None:
        return waited
    ran = _between(last.started_at or last.claimed_at, last.ended_at)
    if len(tried) == 1:
        return f"{waited}, and ran for {ran}"
    whole = _between(job.created_at, job.finished_at or last.ended_at)
    return f"{waited}, ran for {ran} in its last attempt, and took {whole} in all"


def _between(begin: datetime, end: datetime) -> str:
    return spoken(max(0.0, (end - begin).total_seconds()))


MOST_NAMED = 5


def hindrances(here: Around) -> Iterator[Blocker]:
    yield from _stopped(here)
    yield from _closed(here)
    yield from _unfit_service(here)
    yield from _unknown_type(here)
    yield from _full_agent(here)
    yield from _full_key(here)
    yield from _silent(here)
    yield from _no_gpu(here)
    yield from _no_memory(here)
    yield from _model_elsewhere(here)


def _stopped(here: Around) -> Iterator[Blocker]:
    pool, kind = here.job.pool, here.job.type
    scopes = {ALL: "", f"pool:{pool}": f" --pool {pool}", f"type:{kind}": f" --type {kind}"}
    for hold in limits_sql.standing_holds(here.tx).holds:
        if hold.scope in scopes:
            yield _held(hold, scopes[hold.scope])


def _held(hold: Hold, option: str) -> Blocker:
    what = "everything" if hold.scope == ALL else hold.scope.replace(":", " ")
    by_itself = "" if hold.until is None else f"it goes on by itself at {told(hold.until)}, or "
    drained = hold.kind is HoldKind.DRAIN
    return Blocker(
        code=Block.DRAINED if drained else Block.PAUSED,
        text=f"{what} is {'drained' if drained else 'stopped'} by {hold.actor} ({hold.why})",
        since=hold.since,
        ends=f"{by_itself}go on with: herdsman resume{option}",
    )


def _closed(here: Around) -> Iterator[Blocker]:
    pool = pools_sql.find_pool(here.tx, here.job.pool)
    if pool is not None and pool.state not in OPEN:
        yield Blocker(
            code=Block.POOL_CLOSED,
            text=f"pool {pool.pool_id} is {pool.state} ({pool.reason}) and takes no job",
            since=pool.updated_at,
            ends=f"start it again with: herdsman pool create {pool.pool_id}",
        )


def _unfit_service(here: Around) -> Iterator[Blocker]:
    there = [*here.active, *here.starting]
    unfit = [each for each in there if each.id in here.unfit]
    if not unfit or any(here.takes(each) for each in there):
        return
    first = unfit[0].id
    others = f", and {len(unfit) - 1} more with it" if len(unfit) > 1 else ""
    yield Blocker(
        code=Block.SERVICE_UNFIT,
        text=f"worker {first}{others} takes no jobs of type {here.job.type}: {here.unfit[first]}",
        ends=f"it starts when the service can take jobs again; see: herdsman why worker {first}",
    )


def _unknown_type(here: Around) -> Iterator[Blocker]:
    """Only where all that are there have said what they take: one that has said nothing yet may take it."""
    there = [*here.active, *here.starting]
    if not there or any(here.takes(each) or each.id in here.unfit for each in there):
        return
    job, others = here.job, sorted({each.pool for each in here.seen.workers if _serves(here, each)})
    known = sorted({kind for each in there for kind in here.named_types[each.id]})
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    option = "" if job.pool == DEFAULT_POOL else f" --pool {job.pool}"
    elsewhere = f"; pool {others[0]} has workers that do" if others else ""
    yield Blocker(
        code=Block.UNKNOWN_TYPE,
        text=f"no worker of pool {job.pool} knows the type {job.type}:"
        f" they take {', '.join(known[:MOST_NAMED])}{more}{elsewhere}",
        since=job.run_at,
        ends=f"start one that does: herdsman worker{option} --module MODULE (or --exec {job.type}=COMMAND)",
    )


def _serves(here: Around, worker: SeenWorker) -> bool:
    living = worker.state in (WorkerState.ACTIVE, WorkerState.SPAWNING)
    return living and here.job.type in here.named_types.get(worker.id, frozenset())


def _full_agent(here: Around) -> Iterator[Blocker]:
    agent = here.job.agent
    most = here.services.rules().limits_of(agent).max_running
    if most is not None and (running := claim_sql.running_of_agent(here.tx, agent)) >= most:
        yield Blocker(
            code=Block.AGENT_FULL,
            text=f"agent {agent} has all its places taken: {running} of {most} (max_running)",
            ends="it starts when one of them ends; the limit: herdsman policy show",
        )


def _full_key(here: Around) -> Iterator[Blocker]:
    key = here.job.concurrency_key
    if key is None:
        return
    most = here.services.rules().most_of(key)
    if (running := claim_sql.running_of_key(here.tx, key)) >= most:
        yield Blocker(
            code=Block.KEY_FULL,
            text=f"concurrency key {key} has all its places taken: {running} of {most}",
            ends="it starts when one of them ends; the limit: herdsman policy show",
        )


def _silent(here: Around) -> Iterator[Blocker]:
    if here.free and not here.asking:
        last = max(here.free, key=lambda each: each.last_heartbeat or each.created_at)
        yield Blocker(
            code=Block.SILENT_WORKERS,
            text=f"no free worker of pool {here.job.pool} asks for work: {last.id} was the last that was heard of",
            since=last.last_heartbeat,
            ends=f"see: herdsman why worker {last.id}",
        )


def _no_gpu(here: Around) -> Iterator[Blocker]:
    job = here.job
    if job.gpu_memory_mb is None or job.allow_cpu or not here.able:
        return
    if all(each.gpu_seen is False for each in here.able):
        yield Blocker(
            code=Block.NO_GPU,
            text=f"it needs {job.gpu_memory_mb} MB of GPU memory, and no worker of pool {job.pool} that takes"
            f" {job.type} has a GPU",
            since=job.run_at,
            ends="start a worker on a machine with a GPU, or submit it with --allow-cpu",
        )


def _no_memory(here: Around) -> Iterator[Blocker]:
    job, leasing = here.job, here.services.leasing
    if leasing.mode is not LeaseMode.ON or not here.asking:
        return
    narrow = sql.too_narrow(here.tx, [each.id for each in here.asking], job.gpu_memory_mb, leasing)
    if narrow is None:
        return
    most = max(narrow, key=lambda each: each.free_mb)
    wanted = "a GPU of its own" if job.gpu_memory_mb is None else f"{job.gpu_memory_mb} MB of GPU memory"
    yield Blocker(
        code=Block.GPU_MEMORY,
        text=f"no free worker has {wanted}: the most is {most.free_mb} MB on {most.worker_id} ({most.reason})",
        ends="it starts when leases end or their memory is free; see: herdsman leases, herdsman gpus",
    )


def _model_elsewhere(here: Around) -> Iterator[Blocker]:
    job = here.job
    if job.model is None or not here.asking:
        return
    until = job.run_at + here.services.policy.model_wait
    holders = sql.holders_of(here.tx, job.pool, job.model)
    if not holders or until <= here.tx.now() or any(each.id in holders for each in here.asking):
        return
    yield Blocker(
        code=Block.MODEL,
        text=f"it waits for a worker that has model {job.model} loaded: {min(holders)} has, and is busy",
        since=job.run_at,
        ends=f"any free worker takes it at {told(until)} (MAX_TASK_WAIT_MINUTES)",
    )


NOT_YET = (JobState.SCHEDULED, JobState.FAILED)
FINAL = (Block.PAUSED, Block.DRAINED, Block.POOL_CLOSED, Block.UNKNOWN_TYPE)
"""While one of these stands, more workers would not help."""
LASTING = (
    Block.NO_LEADER,
    Block.NO_CYCLE,
    Block.NOBODY_KEEPS,
    Code.SERVED_BY_HAND,
    Code.KILL_SWITCH,
    Code.PROVIDER_REJECTED,
)
"""A pool without workers stays without them until a person does something."""


def obstacles(here: Around) -> tuple[list[Blocker], NextWorker | None]:
    """Of a job in the queue, the first that must go first; with the next worker of its pool where none is free."""
    blockers = [*hindrances(here)]
    if here.free or any(each.code in FINAL for each in blockers):
        return blockers, None
    unfree, following = no_worker(here)
    return [*blockers, unfree], following


def untold(here: Around) -> Blocker | None:
    """What keeps anybody from saying when the job starts. That others go before it, that workers are busy and that
    one is about to start can be counted with; a limit, a stop, or workers that nobody sends cannot."""
    return _later(here) if here.job.state in NOT_YET else _now(here)


def _now(here: Around) -> Blocker | None:
    for blocker in hindrances(here):
        return blocker
    if here.able:
        return None  # each of them is free after the job that it holds
    unfree, following = no_worker(here)
    grows = unfree.code == Block.NO_WORKER and following is not None and following.at_queued is not None
    return None if grows or unfree.code == Block.STARTING else unfree


def _later(here: Around) -> Blocker | None:
    """What may have passed by then is left aside: places that are taken, a provider that has none just now."""
    late = [
        each
        for each in not_yet(here.job, here.tx.now(), here.services.rules())
        if (each.code == Block.NOT_STAGED)
    ]
    final = [each for each in hindrances(here) if each.code in FINAL]
    found = [*late, *final]
    if not found and not here.able:
        unfree, _ = no_worker(here)
        found = [unfree] if unfree.code in LASTING else []
    return found[0] if found else None
