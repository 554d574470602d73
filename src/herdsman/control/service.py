"""Everything that a replica does by itself, until it is told to stop."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from threading import Event

import structlog

from herdsman.control.cycle import Cycle
from herdsman.control.leadership import Leadership
from herdsman.control.reconciler import Reconciler
from herdsman.control.requests import Ear
from herdsman.control.sweeper import Sweeper
from herdsman.core.actions import Note
from herdsman.core.fleet import Snapshot
from herdsman.core.states import PoolState
from herdsman.ports import SystemThreads, Threads

log = structlog.get_logger()

FOLLOWS = timedelta(milliseconds=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Loops side by side: one keeps the leadership, one keeps jobs moving, one keeps the fleet, one listens."""

    sweeper: Sweeper
    leadership: Leadership
    reconciler: Reconciler
    ear: Ear
    poll: timedelta
    pool_poll: timedelta = timedelta(seconds=10)
    """The same while a pool that was asked for by name has workers, or wants them."""
    follow: timedelta = FOLLOWS
    """How long one that does not lead waits before it looks again whether it does."""
    threads: Threads = field(default_factory=SystemThreads)

    def run(self, stopping: Event) -> None:
        """A loop that dies takes the others with it: half a control plane looks healthy and is not."""
        loops = {
            "leadership": self.leadership.run,
            "sweeper": self.sweeper.run,
            "reconciler": self._reconcile,
            "ear": self.ear.run,
        }
        failed: list[BaseException] = []
        started = [
            self.threads.start(partial(_guarded, loop, stopping, failed), name)
            for name, loop in loops.items()
        ]
        for each in started:
            each.join()
        if failed:
            raise failed[0]

    def _reconcile(self, stopping: Event) -> None:
        """Who is elected begins at once, and need not wait for its turn."""
        while not stopping.is_set():
            led = self.leadership.term is not None
            cycle = self.reconciler.tick()
            _say(cycle)
            poll = min(self.poll, self.pool_poll) if _keeps_pools(cycle.seen) else self.poll
            stopping.wait((poll if led else min(self.follow, poll)).total_seconds())


def _keeps_pools(seen: Snapshot | None) -> bool:
    served = (PoolState.STARTING, PoolState.RUNNING, PoolState.DRAINING)
    return seen is not None and any(
        pool.life is not None and pool.life.state in served for pool in seen.pools
    )


def _guarded(loop: Callable[[Event], None], stopping: Event, failed: list[BaseException]) -> None:
    try:
        loop(stopping)
    except BaseException as error:  # noqa: BLE001  (the outermost of this thread: kept, and raised in the main one)
        failed.append(error)
    finally:
        stopping.set()


def _say(cycle: Cycle) -> None:
    """A cycle that changed nothing is worth a word only to who listens closely."""
    summary = cycle.summary()
    changed = any(outcome.done and not isinstance(outcome.step.action, Note) for outcome in cycle.outcomes)
    (log.info if changed else log.debug)("cycle.done", **summary)
