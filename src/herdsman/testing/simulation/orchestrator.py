"""A replica of the control plane: the real loops, wired to the world."""

from collections.abc import Callable, Mapping

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.fleet.execute import Executor, Spawner
from herdsman.fleet.leader import Leadership
from herdsman.fleet.observe import Observer
from herdsman.fleet.reconcile import LeaderInbox, Reconciler
from herdsman.fleet.scaling.policies import OURS
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.jobs.sweep import Sweeper
from herdsman.server.loops import ReplicaLoops
from herdsman.testing.simulation.checks.history import LeaderWrite
from herdsman.testing.simulation.cloud import INSTALLATION, WorldProvider, name_of
from herdsman.testing.simulation.scheduler import Process
from herdsman.testing.simulation.threads import OwnClock, WorldThreads
from herdsman.testing.simulation.timing import Timing
from herdsman.testing.simulation.world import World


class WatchedLeadership(Leadership):
    """The real one; whose fence lets somebody write is noted."""

    world: World

    def fence(self, tx: Tx, epoch: int) -> None:
        super().fence(tx, epoch)
        self.world.books.writes.append(LeaderWrite(holder=self.holder, epoch=epoch, at=self.world.now))


def a_replica(
    world: World,
    services: Services,
    process: Process,
    provider: WorldProvider,
    timing: Timing,
    new_worker_id: Callable[[], WorkerId],
    environment_of: Callable[[WorkerId, PoolId], Mapping[str, str]],
    departed: tuple[str, ...] = (),
) -> ReplicaLoops:
    threads, database = WorldThreads(world.scheduler, process), services.database
    # Workers ask it, too, and its clock is its own whoever asks.
    leadership = WatchedLeadership(
        database, OwnClock(world.scheduler, process), process.name, timing.leader, departed=departed
    )
    leadership.world = world
    pools = {DEFAULT_POOL: timing.fleet}
    observer = Observer(
        database=database,
        provider=provider,
        leadership=leadership,
        pools=pools,
        scaling=OURS,
        new_id=lambda: INSTALLATION,
    )
    spawner = Spawner(
        database=database,
        provider=provider,
        leadership=leadership,
        new_worker_id=new_worker_id,
        name_of=name_of,
        environment_of=environment_of,
    )
    reconciler = Reconciler(
        database=database,
        leadership=leadership,
        observer=observer,
        executor=Executor(services=services, provider=provider, leadership=leadership, spawner=spawner),
        clock=world.clock,
        one_at_a_time=threads.lock(),
        replayable_for=None,  # it is never asked again, and would take as long as the cycle itself
    )
    return ReplicaLoops(
        sweeper=Sweeper(services, world.clock, timing.sweep, staging=timing.staging),
        leadership=leadership,
        reconciler=reconciler,
        inbox=LeaderInbox(services, reconciler, world.clock, every=timing.listen),
        poll=timing.reconcile,
        follow=timing.leader.follow,
        clock=world.clock,
        threads=threads,
    )
