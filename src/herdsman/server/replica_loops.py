"""Everything that a replica does by itself, until it is told to stop."""

from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

import structlog

from herdsman.fleet.actions import Note
from herdsman.fleet.leader import Leadership
from herdsman.fleet.reconcile import LISTEN, LeaderInbox, Reconciler
from herdsman.jobs.sweep import STAGING, Sweeper
from herdsman.loops.loop_group import LoopGroup, LoopHealth
from herdsman.loops.periodic import PeriodicLoop
from herdsman.loops.watchdog import Notifier
from herdsman.ports import Clock, SystemClock, SystemThreads, Threads
from herdsman.states import PoolState

log = structlog.get_logger()
FOLLOWS = timedelta(milliseconds=200)
HANGS_AFTER = timedelta(minutes=15)
"""A turn waits for the database or a provider for minutes at most, however long they are away."""
STOPS_WITHIN = timedelta(minutes=2)
"""A cycle may be waiting for a provider's answer, which says whether a machine was rented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopIntervals:
    poll: timedelta
    """Between two cycles of the leader."""
    sweep: timedelta
    """Between two looks for claims and leases that have expired."""
    pool_poll: timedelta = timedelta(seconds=10)
    """The same while a pool that was asked for by name has workers, or wants them."""
    follow: timedelta = FOLLOWS
    """How long one that does not lead waits before it looks again whether it does."""
    staging: timedelta = STAGING
    inbox: timedelta = LISTEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoops:
    """Loops side by side: one keeps the leadership, one keeps jobs moving, one keeps the fleet, one answers requests."""

    sweeper: Sweeper
    leadership: Leadership
    reconciler: Reconciler
    inbox: LeaderInbox
    intervals: LoopIntervals
    health: LoopHealth = field(default_factory=LoopHealth)
    """Is told of loops that hang. They are reported, and not killed: the API serves on without them."""
    clock: Clock = field(default_factory=SystemClock)
    threads: Threads = field(default_factory=SystemThreads)

    def run(self, stopping: Event) -> None:
        """A loop that dies takes the others with it: half a control plane looks healthy and is not."""
        group = LoopGroup(
            [
                self.leadership.loop(self.threads),
                self.sweeper.loop(self.threads),
                PeriodicLoop("reconciler", self.reconcile, clock=self.clock, threads=self.threads),
                self.inbox.loop(self.threads),
            ],
            watchdog_threshold=None,
            readiness_threshold=HANGS_AFTER.total_seconds(),
            shutdown_timeout=STOPS_WITHIN.total_seconds(),
            on_late=lambda member: log.error(
                "loop.hangs", loop=member.name, seconds=round(member.age or 0.0)
            ),
            notifier=Notifier({}),  # systemd is not asked to wait for a replica
            health=self.health,
            threads=self.threads,
            clock=self.clock,
        )
        group.start(on_end=stopping.set)
        stopping.wait()
        group.stop()

    def reconcile(self) -> float:
        """One cycle, and the seconds to wait for the next; whoever is elected begins at once."""
        led = self.leadership.term is not None
        cycle = self.reconciler.tick()
        changed = any(
            outcome.done and not isinstance(outcome.step.action, Note) for outcome in cycle.outcomes
        )
        (log.info if changed else log.debug)("cycle.done", **cycle.summary())
        served = (PoolState.STARTING, PoolState.RUNNING, PoolState.DRAINING)
        pools = () if cycle.seen is None else cycle.seen.pools
        has_named_pools = any(pool.life is not None and pool.life.state in served for pool in pools)
        intervals = self.intervals
        poll = min(intervals.poll, intervals.pool_poll) if has_named_pools else intervals.poll
        return (poll if led else min(intervals.follow, poll)).total_seconds()
