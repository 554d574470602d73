"""How often a replica looks at its fleet."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from herdsman.control.cycle import Cycle
from herdsman.control.replica import Replica
from herdsman.core.fleet import PoolLife, SeenPool, Snapshot
from herdsman.core.model import PoolId
from herdsman.core.policy import FleetPolicy
from herdsman.core.states import PoolState
from tests.fleet import NOW


@dataclass
class Leads:
    term: int = 1


@dataclass
class Ticks:
    seen: Snapshot

    def tick(self) -> Cycle:
        return Cycle(started_at=NOW, epoch=1, seen=self.seen)


@pytest.mark.parametrize(
    ("life", "pause"),
    [
        (None, 30),
        (PoolLife(state=PoolState.RUNNING), 10),
        (PoolLife(state=PoolState.DRAINING), 10),
        (PoolLife(state=PoolState.STOPPED), 30),
    ],
)
def test_a_pool_that_was_asked_for_by_name_is_looked_at_more_often(
    life: PoolLife | None, pause: float
) -> None:
    """GPU_POOL_POLICY_PERIOD_S"""
    seen = Snapshot(now=NOW, pools=(SeenPool(id=PoolId("p"), policy=FleetPolicy(), life=life),))
    parts = {"leadership": Leads(), "reconciler": Ticks(seen), "sweeper": None, "inbox": None}
    replica = Replica(**cast("Any", parts), poll=timedelta(seconds=30), pool_poll=timedelta(seconds=10))
    assert replica.reconcile() == pause
