"""Money: split by day, pool and kind of job, and never lost in between."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.fleet.cost import BY, IDLE, grouped, parts
from herdsman.fleet.stats_sql import Effort, Stay
from herdsman.fleet.wire import MoneyOut

START = datetime(2026, 3, 1, 22, tzinfo=UTC)
SINCE, UNTIL = START - timedelta(days=1), START + timedelta(hours=6)
HOUR = timedelta(hours=1)


def a_stay(worker: str = "w1", *, pool: str = "default", hours: float | None = 4) -> Stay:
    return Stay(
        name=worker,
        worker_id=worker,
        pool=pool,
        cost_per_hour=Decimal(2),
        started_at=START,
        ended_at=None if hours is None else START + hours * HOUR,
    )


def an_effort(begin: float, end: float | None, *, kind: str = "image", worker: str = "w1") -> Effort:
    return Effort(
        worker_id=worker,
        type=kind,
        started_at=START + begin * HOUR,
        ended_at=None if end is None else START + end * HOUR,
    )


def lines(by: str, stays: list[Stay], efforts: list[Effort], since: datetime, until: datetime) -> tuple[MoneyOut, ...]:
    return grouped(parts(stays, efforts, since, until), BY[by])


def shown(found: tuple[MoneyOut, ...]) -> dict[str, tuple[object, object]]:
    return {line.key: (pytest.approx(line.busy_usd), pytest.approx(line.idle_usd)) for line in found}


def test_a_day_ends_at_midnight() -> None:
    found = lines("day", [a_stay()], [an_effort(1, 3)], SINCE, UNTIL)
    assert shown(found) == {"2026-03-01": (2, 2), "2026-03-02": (2, 2)}


def test_a_pool_has_what_its_workers_cost() -> None:
    stays = [a_stay(), a_stay("w2", pool="video", hours=1)]
    assert shown(lines("pool", stays, [an_effort(0, 4)], SINCE, UNTIL)) == {
        "default": (8, 0),
        "video": (0, 2),
    }


def test_waiting_belongs_to_no_kind_of_job() -> None:
    efforts = [an_effort(0, 1), an_effort(1, 3, kind="video")]
    assert shown(lines("type", [a_stay()], efforts, SINCE, UNTIL)) == {
        "image": (2, 0),
        "video": (4, 0),
        IDLE: (0, 2),
    }


def test_what_has_not_ended_counts_up_to_now() -> None:
    assert shown(lines("pool", [a_stay(hours=None)], [an_effort(5, None)], SINCE, UNTIL)) == {"default": (2, 10)}


def test_only_what_lies_in_the_window_counts() -> None:
    found = lines("pool", [a_stay()], [an_effort(0, 4)], START + HOUR, START + 2 * HOUR)
    assert shown(found) == {"default": (2, 0)}


_INSTANTS = st.floats(-2, 8)


@pytest.mark.parametrize("by", BY)
@given(efforts=st.lists(st.tuples(_INSTANTS, _INSTANTS), max_size=5))
def test_the_sum_is_that_of_the_stays_however_it_is_grouped(by: str, efforts: list[tuple[float, float]]) -> None:
    stays = [a_stay(), a_stay("w2", pool="video", hours=None)]
    found = lines(by, stays, [an_effort(*sorted(each)) for each in efforts], SINCE, UNTIL)
    expected = sum(stay.cost(SINCE, UNTIL) for stay in stays)
    assert sum(line.total_usd for line in found) == pytest.approx(float(expected))
