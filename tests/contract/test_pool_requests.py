"""J1: what may be asked of a pool, and what is refused."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, NotFound
from herdsman.ids import PoolId
from herdsman.jobs.commands import count_jobs, submit_jobs
from herdsman.jobs.model import NewJob
from herdsman.pools.commands import (
    beat_pool,
    drain_pool,
    evict_pool,
    find_pool,
    list_pools,
    scale_pool,
    start_pool,
    swap_pool,
)
from herdsman.pools.rules import NewPool, PoolLimits, PoolRules, Schedule, ServedBy, Serves, Sizes, Window
from herdsman.states import JobStatus
from tests.support.builders import sql
from tests.support.pools import LLM, SERVES, a_pool, history
from tests.support.threads import at_once


def test_asking_again_is_harmless_and_another_size_holds_from_then_on(services: Services) -> None:
    first = start_pool(services, NewPool(pool_id=LLM, serves=SERVES, desired_workers=2))
    again = start_pool(services, NewPool(pool_id=LLM, serves=SERVES, desired_workers=2))
    more = start_pool(services, NewPool(pool_id=LLM, serves=SERVES, desired_workers=5))
    assert (first.created, again.created, more.created) == (True, False, False)
    assert first.status == again.status
    assert more.status.pool.desired_workers == 5
    assert history(services) == [("starting", "created")]


def test_a_pool_without_a_name_gets_one(services: Services) -> None:
    made = [start_pool(services, NewPool()).status.pool.pool_id for _ in range(2)]
    assert len(set(made)) == 2
    assert [each.pool.pool_id for each in list_pools(services)] == sorted(made)


def test_another_model_is_not_changed_by_asking_again(services: Services) -> None:
    a_pool(services)
    with pytest.raises(Conflict, match="swap"):
        a_pool(services, serves=Serves(model="other"))
    with pytest.raises(Conflict, match="served by"):
        a_pool(services, served_by=ServedBy.HAND)


def test_a_pool_of_the_settings_is_not_ours_to_change(services: Services) -> None:
    with pytest.raises(Conflict, match="settings"):
        a_pool(services, "default")


def test_jobs_are_refused_by_a_pool_that_is_closed_and_wait_for_one_that_may_come(services: Services) -> None:
    """J1"""
    a_pool(services)
    drain_pool(services, LLM)
    submit_jobs(services, [NewJob(type="demo"), NewJob(type="demo", pool=PoolId("unheard-of"))])
    with pytest.raises(Conflict, match=r"draining.*herdsman pool create"):
        submit_jobs(services, [NewJob(type="demo"), NewJob(type="demo", pool=LLM)])
    assert count_jobs(services)[JobStatus.PENDING] == 2


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"desired_workers": 65}, "desired_workers"),
        ({"desired_workers": -1}, "desired_workers"),
        ({"hold": timedelta(0)}, "hold_seconds"),
        ({"hold": timedelta(hours=3)}, "hold_seconds"),
        ({"serves": Serves(model="a b")}, "model_id"),
        ({"serves": Serves(variant="a/b")}, "variant"),
        ({"agent": ""}, "agent_name"),
        ({"rules": PoolRules(max_workers=1)}, "max_workers"),
        ({"rules": PoolRules(preload=("x" * 256,))}, "preload"),
        (
            {"rules": PoolRules(schedule=Schedule(windows=(Window(days=frozenset({0}), begin=5, end=5),)))},
            "no length",
        ),
        (
            {
                "rules": PoolRules(
                    schedule=Schedule(windows=(Window(days=frozenset({0}), begin=1, end=5, zone="Mars/Olympus"),))
                )
            },
            "timezone",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_field(services: Services, asked: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        a_pool(services, **asked)


def test_a_pool_that_nobody_knows_or_that_is_closed_is_not_changed(services: Services) -> None:
    for command in (beat_pool, drain_pool, evict_pool, find_pool):
        with pytest.raises(NotFound):
            command(services, PoolId("none"))
    a_pool(services)
    evict_pool(services, LLM)
    with pytest.raises(Conflict):
        beat_pool(services, LLM)
    with pytest.raises(Conflict):
        scale_pool(services, LLM, 3)
    with pytest.raises(Conflict):
        swap_pool(services, LLM, {"model": "x"})


def test_rules_come_back_as_they_were_written(services: Services) -> None:
    window = Window(days=frozenset({0, 6}), begin=22 * 60, end=360, zone="Europe/Berlin", sizes=Sizes(least=1, most=4))
    rules = PoolRules(
        min_workers=1,
        max_workers=4,
        warm_buffer=2,
        idle_timeout=timedelta(seconds=90),
        max_lifetime=timedelta(hours=5),
        schedule=Schedule(windows=(window,), outside=Sizes(least=0, most=2)),
        preload=("org/a", "org/b"),
    )
    assert a_pool(services, rules=rules, isolated=True).pool.rules == rules
    assert find_pool(services, LLM).pool.isolated


def test_a_hand_written_move_that_is_not_legal_is_refused_by_the_database(services: Services) -> None:
    a_pool(services)
    with pytest.raises(Exception, match="herdsman"):
        sql(services.database, "UPDATE worker_pools SET status = 'stopped', version = version + 1")


def test_many_that_ask_at_once_do_not_open_more_pools_than_allowed(services: Services) -> None:
    """The last place is given once, and one name is one pool."""
    limited = replace(services, pools=PoolLimits(most=3))

    def ask(number: int) -> bool:
        try:
            return start_pool(limited, NewPool(pool_id=PoolId(f"p{number % 6}"))).created
        except Conflict:
            return False

    assert sum(at_once(12, ask)) == 3
    assert len(list_pools(services)) == 3
