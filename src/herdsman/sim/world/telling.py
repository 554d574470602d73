"""What happened in a world, for those who check it."""

from dataclasses import replace

from herdsman.sim.checks.history import History, Limits
from herdsman.sim.checks.recorded import read_history
from herdsman.sim.world.faults import Fault
from herdsman.sim.world.leftovers import hints_of
from herdsman.sim.world.site import Site
from herdsman.sim.world.world import ZERO


def history_of(site: Site, *, quiet: bool) -> History:
    world, books = site.world, site.world.books
    with site.database.aside() as database:
        recorded = read_history(database, zero=ZERO)
    return replace(
        recorded,
        submissions=tuple(books.submissions.values()),
        cancels=tuple(books.cancels),
        receipts=tuple(books.receipts),
        runs=tuple(books.runs),
        pods=site.cloud.ledger(),
        writes=tuple(books.writes),
        hints=hints_of(site),
        limits=Limits(
            most_pods=site.setting.most_workers, most_worker_losses=site.timing.jobs.retry.max_worker_losses
        ),
        last_fault_at=world.last_fault_at,
        ended_at=world.now,
        quiet=quiet,
        # A machine that stands still cannot stop what it runs.
        overlaps_allowed=any(world.story.notes[f"fault:{each}"] for each in (Fault.STOP, Fault.TWIN)),
        notes=dict(world.story.notes),
    )
