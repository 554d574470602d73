"""What happened in a world, for those who check it."""

from dataclasses import replace

from herdsman.sim.checks.history import History, Limits
from herdsman.sim.checks.recorded import read_history
from herdsman.sim.world.faults import Fault
from herdsman.sim.world.leftovers import hints_of
from herdsman.sim.world.shelf import GPUS, TOTAL_MB
from herdsman.sim.world.site import REOPENED_S, Site
from herdsman.sim.world.world import ZERO, World

LATE_S = 13.0
"""What words on their way may add to a time that is promised."""
MOST_OVERTAKES = 12


def history_of(site: Site, *, quiet: bool) -> History:
    world, books = site.world, site.world.books
    with site.database.aside() as database:
        recorded = read_history(database, zero=ZERO)
    _note(world, recorded)
    return replace(
        recorded,
        submissions=tuple(books.submissions.values()),
        cancels=tuple(books.cancels),
        receipts=tuple(books.receipts),
        runs=tuple(books.runs),
        pods=site.cloud.ledger(),
        writes=tuple(books.writes),
        uses=tuple(books.uses),
        gpu_mb=dict.fromkeys(GPUS, TOTAL_MB),
        hints=hints_of(site),
        limits=_limits(site),
        last_fault_at=max(world.last_fault_at, world.all_well_at) + REOPENED_S,
        ended_at=world.now,
        quiet=quiet,
        overlaps_allowed=_may_overlap(world),
        notes=dict(world.story.notes),
    )


def _note(world: World, recorded: History) -> None:
    """Which ways jobs and workers went, and whether the lead passed on."""
    for kind, reason in {(move.kind, move.reason) for move in recorded.moves}:
        world.note(f"{kind}:{reason}")
    if len({write.epoch for write in world.books.writes}) > 1:
        world.note("leader_changed")


def _may_overlap(world: World) -> bool:
    """A machine that stands still cannot stop what it runs, and a clock that is set forward ends claims at once."""
    return any(world.story.notes[each] for each in ("worker_stood_still", f"fault:{Fault.CLOCK_JUMP}"))


def _limits(site: Site) -> Limits:
    """A clock that jumps leaves no way to tell how long something took."""
    jumped = site.world.story.notes[f"fault:{Fault.CLOCK_JUMP}"]
    timing = site.timing
    rescue = timing.jobs.claim_ttl + timing.sweep
    return Limits(
        most_pods=site.setting.most_workers,
        most_worker_losses=timing.jobs.retry.max_worker_losses,
        most_interruptions=timing.jobs.retry.max_interruptions,
        most_overtakes=MOST_OVERTAKES,
        rescue_s=None if jumped else rescue.total_seconds() + LATE_S,
    )
