"""The rules of leases on plain values: what fits, whose memory it is, and who is served before whom."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest
from herdsman.ids import WorkerId
from herdsman.leases.rules import (
    OVERTAKEN,
    Gpu,
    Held,
    LastEnd,
    LeasePolicy,
    Measurement,
    Obstacle,
    Standing,
    Waiting,
    Wish,
    account,
    as_hopeless,
    barred_by,
    check_ttl,
    check_wait,
    choose,
    free_mb,
    obstacle,
    usable_mb,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = LeasePolicy()
MINE, OTHER = WorkerId("mine"), WorkerId("other")


def a_gpu(**given_: object) -> Gpu:
    usual = Gpu(uuid="g", node_id="n", index=0, total_mb=24_000, measured_at=NOON, proven_at=NOON)
    return replace(usual, **given_)  # type: ignore[arg-type]


def standing(*live: Held, **given_: object) -> Standing:
    return Standing(gpu=a_gpu(**given_), live=live)


def hindered(
    seen: Standing, memory_mb: int = 8000, *, at: datetime = NOON, **wish: object
) -> Obstacle | None:
    return obstacle(seen, replace(Wish(memory_mb=memory_mb), **wish), at, POLICY)  # type: ignore[arg-type]


def test_each_obstacle_has_its_own_word() -> None:
    held = Held(memory_mb=20_000)
    assert hindered(standing()) is None
    assert hindered(standing(held)) is Obstacle.LEASED
    assert hindered(standing(used_mb=20_000)) is Obstacle.MEMORY_IN_USE
    assert hindered(standing(used_mb=20_000, outside_mb=20_000)) is Obstacle.OUTSIDERS
    assert hindered(standing(Held(memory_mb=1, exclusive=True)), 1) is Obstacle.HELD_ALONE
    assert hindered(standing(Held(memory_mb=1)), 1, exclusive=True) is Obstacle.SHARED
    assert hindered(standing(outside_mb=600), 1, exclusive=True) is Obstacle.OUTSIDERS
    assert hindered(standing(outside_mb=500), 1, exclusive=True) is None
    assert hindered(standing(quarantined_at=NOON)) is Obstacle.QUARANTINED
    assert hindered(standing(), at=NOON + 61 * SECOND) is Obstacle.GPU_SILENT


def test_l3_an_end_is_waited_for_until_somebody_has_looked() -> None:
    seen = replace(standing(), ends=((NOON + SECOND, None),))
    assert hindered(seen) is Obstacle.UNPROVEN
    looked = replace(seen, gpu=a_gpu(measured_at=NOON + 2 * SECOND))
    assert hindered(looked) is Obstacle.NOT_EMPTY, "somebody has looked, and did not find it empty"


def test_a_worker_does_not_wait_after_its_own_leases_nor_stand_in_its_own_way() -> None:
    seen = replace(standing(Held(memory_mb=24_000, exclusive=True, worker_id=MINE)), ends=((NOON, MINE),))
    assert hindered(seen, 24_000, worker_id=MINE, exclusive=True) is None
    assert hindered(seen, 1, worker_id=OTHER) is Obstacle.UNPROVEN
    assert hindered(standing(), 1, worker_id=MINE, at=NOON + 90 * SECOND) is None


@given(
    total=st.integers(1, 100_000),
    used=st.integers(0, 100_000),
    outside=st.integers(0, 100_000),
    held=st.lists(st.tuples(st.integers(0, 50_000), st.booleans()), max_size=4),
    memory=st.integers(1, 100_000),
    exclusive=st.booleans(),
    reserve=st.integers(0, 5000),
)
def test_l1_what_is_granted_fits_beside_everything_else(
    total: int,
    used: int,
    outside: int,
    held: list[tuple[int, bool]],
    memory: int,
    exclusive: bool,
    reserve: int,
) -> None:
    policy = LeasePolicy(reserve_mb=reserve)
    live = tuple(Held(memory_mb=mb, exclusive=alone) for mb, alone in held)
    seen = Standing(gpu=a_gpu(total_mb=total, used_mb=used, outside_mb=outside), live=live)
    wish = Wish(memory_mb=memory, exclusive=exclusive)
    if obstacle(seen, wish, NOON, policy) is None:
        assert memory + sum(mb for mb, _ in held) + outside + reserve <= total
        assert memory + used + reserve <= total
        assert not any(alone for _, alone in held)
        assert not (exclusive and held)
        assert memory <= free_mb(seen, policy) <= usable_mb(seen.gpu, policy)


def test_the_tightest_fit_comes_first_and_nothing_barred() -> None:
    seen = [
        Standing(gpu=a_gpu(uuid=name), live=(Held(memory_mb=mb),))
        for name, mb in (("a", 0), ("b", 12_000), ("c", 20_000))
    ]
    assert choose(seen, Wish(memory_mb=8000), NOON, POLICY).fits == ("b", "a")
    barred = choose(seen, Wish(memory_mb=8000), NOON, POLICY, frozenset({"a", "b"}))
    assert barred.refusal is not None and barred.refusal.reason is Obstacle.LEASED
    all_of_them = choose(seen, Wish(memory_mb=8000), NOON, POLICY, frozenset("abc"))
    assert all_of_them.refusal is not None and all_of_them.refusal.reason is Obstacle.WAITS_BEHIND


def test_what_can_never_be_granted_is_told_apart_from_what_can() -> None:
    assert _reason([], Wish(memory_mb=1)) is Obstacle.NO_GPU
    assert _reason([standing()], Wish(memory_mb=1, node="elsewhere")) is Obstacle.NO_GPU
    assert _reason([standing()], Wish(memory_mb=24_001)) is Obstacle.TOO_LARGE
    assert Obstacle.TOO_LARGE.final and not Obstacle.NO_GPU.final


def _reason(seen: list[Standing], wish: Wish) -> Obstacle | None:
    refusal = choose(seen, wish, NOON, POLICY).refusal
    return refusal and refusal.reason


def found(used: int, *, at: datetime = NOON + SECOND, own: int | None = 0) -> Measurement:
    return Measurement(at=at, total_mb=24_000, used_mb=used, own_mb=own, pids=(12, 34))


def test_memory_is_shared_out_among_leases_the_worker_and_outsiders() -> None:
    empty, held = standing(), standing(Held(memory_mb=8000), outside_mb=1000)
    assert account(empty, found(3000), POLICY).outside_mb == 3000
    assert account(empty, found(3000, own=2000), POLICY, reporter=MINE).outside_mb == 1000
    assert account(empty, found(3000, own=None), POLICY, reporter=MINE).outside_mb == 0
    assert account(held, found(5000), POLICY).outside_mb == 1000, "the holder has not taken all of its memory"
    assert account(held, found(500), POLICY).outside_mb == 500
    assert account(held, found(11_000), POLICY).outside_mb == 3000
    job = standing(Held(memory_mb=24_000, exclusive=True, worker_id=MINE))
    assert account(job, found(20_000, own=19_000), POLICY, reporter=MINE).outside_mb == 0


def test_l3_what_is_left_of_a_lease_is_waited_for_then_quarantined() -> None:
    seen, end = standing(), LastEnd(at=NOON + SECOND, agent="ann")

    def after(seconds: int, used: int) -> tuple[bool, bool]:
        kept = account(seen, found(used, at=NOON + seconds * SECOND), POLICY, last=end)
        return kept.proven_at > NOON, kept.quarantine is not None

    assert after(1, 0) == (False, False), "measured in the moment of the end"
    assert after(2, 0) == (True, False)
    assert after(2, 512) == (True, False)
    assert after(2, 8000) == (False, False)
    assert after(11, 8000) == (False, False)
    assert after(12, 8000) == (False, True)
    said = account(seen, found(8000, at=NOON + 12 * SECOND), POLICY, last=end).quarantine or ""
    assert all(word in said for word in ("8000 MB", "ann", "12, 34"))


@given(
    prev=st.integers(0, 24_000),
    used=st.integers(0, 24_000),
    leased=st.lists(st.integers(0, 24_000), max_size=3),
    own=st.none() | st.integers(0, 24_000),
    ended=st.none() | st.integers(-5, 30),
)
def test_outsiders_never_have_more_than_is_in_use(
    prev: int, used: int, leased: list[int], own: int | None, ended: int | None
) -> None:
    seen = standing(*(Held(memory_mb=mb) for mb in leased), outside_mb=prev)
    last = None if ended is None else LastEnd(at=NOON + ended * SECOND, agent="ann")
    kept = account(seen, found(used, own=own, at=NOON + 15 * SECOND), POLICY, reporter=MINE, last=last)
    assert 0 <= kept.outside_mb <= used
    if kept.quarantine is not None:
        assert used > kept.outside_mb + sum(leased) + (own or 0) + POLICY.tolerance_mb


def a_waiter(since: float, could: str = "ab") -> Waiting:
    return Waiting(wish=Wish(memory_mb=8000), agent="ann", since=since, could_hold=frozenset(could))


def test_one_that_does_not_fit_is_overtaken_for_a_bounded_time_only() -> None:
    limit = OVERTAKEN.total_seconds()
    assert barred_by([a_waiter(0)], limit - 0.1) == frozenset()
    assert barred_by([a_waiter(0)], limit) == frozenset("ab")
    assert barred_by([a_waiter(0), a_waiter(5, "cd")], limit) == frozenset("ab")
    assert barred_by([a_waiter(0), a_waiter(5, "cd")], limit + 5) == frozenset("abcd")


def test_who_asks_for_at_least_as_much_as_one_that_was_refused_is_not_tried() -> None:
    small, large = Wish(memory_mb=1000), Wish(memory_mb=8000)
    assert as_hopeless(large, small) and not as_hopeless(small, large)
    assert as_hopeless(replace(large, exclusive=True), small)
    assert not as_hopeless(large, replace(small, exclusive=True))
    assert not as_hopeless(replace(large, node="n"), small)


@pytest.mark.parametrize("seconds", [0, -1, 0.5, 3601, 1e300, float("inf"), float("nan")])
def test_an_odd_time_to_live_is_refused_by_name_value_and_rule(seconds: float) -> None:
    with pytest.raises(InvalidRequest, match=r"ttl_seconds is .*: it must be from 1 to 3600"):
        check_ttl(seconds, POLICY)


@pytest.mark.parametrize("seconds", [-0.1, 60.1, float("nan")])
def test_an_odd_wait_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidRequest, match="wait_seconds is"):
        check_wait(seconds)


def test_the_margin_of_a_short_lease_is_a_part_of_it() -> None:
    assert POLICY.margin_of(60 * SECOND) == 5 * SECOND
    assert POLICY.margin_of(2 * SECOND) == SECOND / 2
