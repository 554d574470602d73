"""What keeps a waiting job from being given out, though there may be workers for it. The first to be named is the
one that none of the others could matter before."""

from collections.abc import Iterator

from herdsman.control.around import Around
from herdsman.core.blockers import Block, Blocker, told
from herdsman.core.fleet import SeenWorker
from herdsman.core.holds import ALL, Hold, HoldKind
from herdsman.core.leasing import LeaseMode
from herdsman.core.model import DEFAULT_POOL
from herdsman.core.pools import OPEN
from herdsman.core.states import WorkerState
from herdsman.store import choosing, holds, pools, waiting

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
    for hold in holds.standing(here.tx).holds:
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
    pool = pools.find(here.tx, here.job.pool)
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
    if most is not None and (running := choosing.running_of_agent(here.tx, agent)) >= most:
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
    if (running := choosing.running_of_key(here.tx, key)) >= most:
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
    narrow = waiting.too_narrow(here.tx, [each.id for each in here.asking], job.gpu_memory_mb, leasing)
    if narrow is None:
        return
    most = max(narrow, key=lambda each: each.free_mb)
    wanted = "a GPU of its own" if job.gpu_memory_mb is None else f"{job.gpu_memory_mb} MB of GPU memory"
    yield Blocker(
        code=Block.GPU_MEMORY,
        text=f"no free worker has {wanted}: the most is {most.free_mb} MB on {most.worker_id} ({most.obstacle})",
        ends="it starts when leases end or their memory is free; see: herdsman leases, herdsman gpus",
    )


def _model_elsewhere(here: Around) -> Iterator[Blocker]:
    job = here.job
    if job.model is None or not here.asking:
        return
    until = job.run_at + here.services.policy.model_wait
    holders = waiting.holders_of(here.tx, job.pool, job.model)
    if not holders or until <= here.tx.now() or any(each.id in holders for each in here.asking):
        return
    yield Blocker(
        code=Block.MODEL,
        text=f"it waits for a worker that has model {job.model} loaded: {min(holders)} has, and is busy",
        since=job.run_at,
        ends=f"any free worker takes it at {told(until)} (MAX_TASK_WAIT_MINUTES)",
    )
