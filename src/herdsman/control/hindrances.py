"""What keeps a waiting job from being given out, though there may be workers for it."""

from collections.abc import Iterator

from herdsman.core.model import Job
from herdsman.core.pools import OPEN
from herdsman.store import choosing, holds, pools
from herdsman.store.database import Tx


def hindrances(tx: Tx, job: Job) -> Iterator[str]:
    """A sentence for each, with what would end it."""
    yield from _stopped(tx, job)
    yield from _closed(tx, job)
    if job.concurrency_key is not None and (running := choosing.running_of_key(tx, job.concurrency_key)):
        yield f"{running} jobs of key {job.concurrency_key} run; how many may: herdsman policy show"
    if job.model is not None and job.model in choosing.loaded_elsewhere(tx, job.pool, None):
        yield f"it waits for a worker that has model {job.model} loaded, for MAX_TASK_WAIT_MINUTES at most"


def _stopped(tx: Tx, job: Job) -> Iterator[str]:
    scopes = {"all": "", f"pool:{job.pool}": f" --pool {job.pool}", f"type:{job.type}": f" --type {job.type}"}
    for hold in holds.standing(tx).holds:
        if hold.scope in scopes:
            what = "everything" if hold.scope == "all" else hold.scope.replace(":", " ")
            yield f"{what} is stopped ({hold.why}); go on with: herdsman resume{scopes[hold.scope]}"


def _closed(tx: Tx, job: Job) -> Iterator[str]:
    pool = pools.find(tx, job.pool)
    if pool is not None and pool.state not in OPEN:
        yield f"pool {job.pool} is {pool.state}; start it again with: herdsman pool create {job.pool}"
