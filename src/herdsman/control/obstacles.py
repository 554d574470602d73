"""Everything that is in the way of a job that waits, and which of it leaves no time to be told."""

from herdsman.control.around import Around
from herdsman.control.growth import no_worker
from herdsman.control.hindrances import hindrances
from herdsman.control.standing import not_yet
from herdsman.core.blockers import Block, Blocker
from herdsman.core.counterfactual import NextWorker
from herdsman.core.findings import Code
from herdsman.core.states import JobState

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
    late = [each for each in not_yet(here.job, here.tx.now(), here.services.rules()) if _nobody(each)]
    final = [each for each in hindrances(here) if each.code in FINAL]
    found = [*late, *final]
    if not found and not here.able:
        unfree, _ = no_worker(here)
        found = [unfree] if unfree.code in LASTING else []
    return found[0] if found else None


def _nobody(blocker: Blocker) -> bool:
    return blocker.code == Block.NOT_STAGED
