"""A whole control loop at a fake Runpod, in a time that the test moves."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count

from herdsman.context import Services
from herdsman.fleet.execute import by_name_only
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.fleet.model import FleetPolicy, Promotion
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.recording import Cycle
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.server.wiring import build_control
from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod import FakeRunpod
from tests.support.databases import MovingClock
from tests.support.runpod import KEY, NAMING, a_provider

# A pod that runs is enough of a worker here: nothing runs in it.
POLICY = FleetPolicy(promotion=Promotion.POD, heartbeat_timeout=timedelta(days=1))
# Time passes in few steps: each of them is a renewal, in a transaction of its own.
PATIENT = LeaderPolicy(ttl=timedelta(hours=1))


@dataclass
class FleetHarness:
    services: Services
    fake: FakeRunpod
    moving: MovingClock
    hands_of_time: ManualClock
    policy: FleetPolicy = POLICY
    leader: LeaderPolicy = PATIENT
    others: Mapping[PoolId, FleetPolicy] = field(default_factory=dict[PoolId, FleetPolicy])
    _workers = count()

    def replica(self, holder: str = "one") -> Reconciler:
        leadership = Leadership(self.services.database, self.hands_of_time, holder, self.leader)
        return build_control(
            self.services,
            a_provider(self.fake),
            leadership,
            pools={DEFAULT_POOL: self.policy, **self.others},
            name_of=NAMING.name,
            environment_of=by_name_only,
            new_worker_id=lambda: WorkerId(f"gpu-{next(self._workers)}"),
            clock=self.hands_of_time,
            replayable_for=timedelta(days=7),
        ).reconciler

    def cycle(self, replica: Reconciler, *, later: timedelta = timedelta(seconds=30)) -> Cycle:
        """One cycle, and then time passes, in which it goes on to lead."""
        replica.leadership.campaign()
        ran = replica.tick()
        while later > timedelta(0):
            step = min(later, self.leader.ttl * 0.9)
            self.moving.advance(step)
            self.hands_of_time.advance(step)
            replica.leadership.campaign()
            later -= step
        return ran

    def with_policy(self, **changed: object) -> None:
        self.policy = replace(self.policy, **changed)  # type: ignore[arg-type]  # a test names real fields


@contextmanager
def a_harness(services: Services, moving: MovingClock) -> Generator[FleetHarness]:
    hands_of_time = ManualClock()
    with FakeRunpod(key=KEY, clock=hands_of_time, run_commands=False) as fake:
        yield FleetHarness(services, fake, moving, hands_of_time)
