"""The rules of leases on plain values: what fits, whose memory it is, and who is served before whom."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest
from herdsman.fleet.model import GpuDevice
from herdsman.ids import WorkerId
from herdsman.leases.rules import (
    OVERTAKEN,
    Gpu,
    GpuUsage,
    LeasePolicy,
    LeaseSpec,
    LiveLease,
    Refusal,
    RefusalReason,
    account,
    check_ttl,
    check_wait,
    choose,
    free_mb,
    refusal_reason,
    reserved_by,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
POLICY = LeasePolicy()
MINE, OTHER = WorkerId("mine"), WorkerId("other")


def a_gpu(**given_: object) -> Gpu:
    usual = Gpu(uuid="g", node_id="n", index=0, total_mb=24_000, measured_at=NOON, proven_at=NOON)
    return replace(usual, **given_)  # type: ignore[arg-type]


def usage_of(*live: LiveLease, **given_: object) -> GpuUsage:
    return GpuUsage(gpu=a_gpu(**given_), live=live)


def hindered(usage: GpuUsage, memory_mb: int = 8000, *, at: datetime = NOON, **spec: object) -> RefusalReason | None:
    return refusal_reason(usage, replace(LeaseSpec(memory_mb=memory_mb), **spec), at, POLICY)  # type: ignore[arg-type]


def test_each_obstacle_has_its_own_word() -> None:
    held = LiveLease(memory_mb=20_000)
    assert hindered(usage_of()) is None
    assert hindered(usage_of(held)) is RefusalReason.LEASED
    assert hindered(usage_of(used_mb=20_000)) is RefusalReason.MEMORY_IN_USE
    assert hindered(usage_of(used_mb=20_000, outside_mb=20_000)) is RefusalReason.OUTSIDERS
    assert hindered(usage_of(LiveLease(memory_mb=1, exclusive=True)), 1) is RefusalReason.HELD_ALONE
    assert hindered(usage_of(LiveLease(memory_mb=1)), 1, exclusive=True) is RefusalReason.SHARED
    assert hindered(usage_of(outside_mb=600), 1, exclusive=True) is RefusalReason.OUTSIDERS
    assert hindered(usage_of(outside_mb=500), 1, exclusive=True) is None
    assert hindered(usage_of(quarantined_at=NOON)) is RefusalReason.QUARANTINED
    assert hindered(usage_of(), at=NOON + 61 * SECOND) is RefusalReason.GPU_SILENT


def test_l3_an_end_is_waited_for_until_somebody_has_looked() -> None:
    usage = replace(usage_of(), ends=((NOON + SECOND, None),))
    assert hindered(usage) is RefusalReason.UNPROVEN
    looked = replace(usage, gpu=a_gpu(measured_at=NOON + 2 * SECOND))
    assert hindered(looked) is RefusalReason.NOT_EMPTY, "somebody has looked, and did not find it empty"


def test_a_worker_does_not_wait_after_its_own_leases_nor_stand_in_its_own_way() -> None:
    usage = replace(usage_of(LiveLease(memory_mb=24_000, exclusive=True, worker_id=MINE)), ends=((NOON, MINE),))
    assert hindered(usage, 24_000, worker_id=MINE, exclusive=True) is None
    assert hindered(usage, 1, worker_id=OTHER) is RefusalReason.UNPROVEN
    assert hindered(usage_of(), 1, worker_id=MINE, at=NOON + 90 * SECOND) is None


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
    live = tuple(LiveLease(memory_mb=mb, exclusive=alone) for mb, alone in held)
    usage = GpuUsage(gpu=a_gpu(total_mb=total, used_mb=used, outside_mb=outside), live=live)
    spec = LeaseSpec(memory_mb=memory, exclusive=exclusive)
    if refusal_reason(usage, spec, NOON, policy) is None:
        assert memory + sum(mb for mb, _ in held) + outside + reserve <= total
        assert memory + used + reserve <= total
        assert not any(alone for _, alone in held)
        assert not (exclusive and held)
        assert memory <= free_mb(usage, policy) <= usage.gpu.total_mb - policy.reserve_mb - usage.gpu.outside_mb


def test_the_tightest_fit_comes_first_and_nothing_barred() -> None:
    usage = [
        GpuUsage(gpu=a_gpu(uuid=name), live=(LiveLease(memory_mb=mb),))
        for name, mb in (("a", 0), ("b", 12_000), ("c", 20_000))
    ]
    assert choose(usage, LeaseSpec(memory_mb=8000), NOON, POLICY) == ["b", "a"]
    reserved = choose(usage, LeaseSpec(memory_mb=8000), NOON, POLICY, frozenset({"a", "b"}))
    assert isinstance(reserved, Refusal) and reserved.reason is RefusalReason.LEASED
    all_of_them = choose(usage, LeaseSpec(memory_mb=8000), NOON, POLICY, frozenset("abc"))
    assert isinstance(all_of_them, Refusal) and all_of_them.reason is RefusalReason.WAITS_BEHIND


def test_what_can_never_be_granted_is_told_apart_from_what_can() -> None:
    assert _reason([], LeaseSpec(memory_mb=1)) is RefusalReason.NO_GPU
    assert _reason([usage_of()], LeaseSpec(memory_mb=1, node="elsewhere")) is RefusalReason.NO_GPU
    assert _reason([usage_of()], LeaseSpec(memory_mb=24_001)) is RefusalReason.TOO_LARGE
    assert RefusalReason.TOO_LARGE.final and not RefusalReason.NO_GPU.final


def _reason(usage: list[GpuUsage], spec: LeaseSpec) -> RefusalReason | None:
    found = choose(usage, spec, NOON, POLICY)
    return found.reason if isinstance(found, Refusal) else None


def found(used: int, *, at: datetime = NOON + SECOND, own: int | None = 0) -> tuple[GpuDevice, datetime]:
    device = GpuDevice(
        index=0,
        uuid="g",
        name="",
        total_mb=24_000,
        used_mb=used,
        own_mb=own,
        processes=((12, None), (34, None)),
    )
    return device, at


def test_memory_is_shared_out_among_leases_the_worker_and_outsiders() -> None:
    empty, held = usage_of(), usage_of(LiveLease(memory_mb=8000), outside_mb=1000)
    assert account(empty, *found(3000), POLICY).outside_mb == 3000
    assert account(empty, *found(3000, own=2000), POLICY, reporter=MINE).outside_mb == 1000
    assert account(empty, *found(3000, own=None), POLICY, reporter=MINE).outside_mb == 0
    assert account(held, *found(5000), POLICY).outside_mb == 1000, "the holder has not taken all of its memory"
    assert account(held, *found(500), POLICY).outside_mb == 500
    assert account(held, *found(11_000), POLICY).outside_mb == 3000
    job = usage_of(LiveLease(memory_mb=24_000, exclusive=True, worker_id=MINE))
    assert account(job, *found(20_000, own=19_000), POLICY, reporter=MINE).outside_mb == 0


def test_l3_what_is_left_of_a_lease_is_waited_for_then_quarantined() -> None:
    usage, end = usage_of(), (NOON + SECOND, "ann")

    def after(seconds: int, used: int) -> tuple[bool, bool]:
        kept = account(usage, *found(used, at=NOON + seconds * SECOND), POLICY, last=end)
        return kept.proven_at > NOON, kept.quarantine is not None

    assert after(1, 0) == (False, False), "measured in the moment of the end"
    assert after(2, 0) == (True, False)
    assert after(2, 512) == (True, False)
    assert after(2, 8000) == (False, False)
    assert after(11, 8000) == (False, False)
    assert after(12, 8000) == (False, True)
    said = account(usage, *found(8000, at=NOON + 12 * SECOND), POLICY, last=end).quarantine or ""
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
    usage = usage_of(*(LiveLease(memory_mb=mb) for mb in leased), outside_mb=prev)
    last = None if ended is None else (NOON + ended * SECOND, "ann")
    kept = account(usage, *found(used, own=own, at=NOON + 15 * SECOND), POLICY, reporter=MINE, last=last)
    assert 0 <= kept.outside_mb <= used
    if kept.quarantine is not None:
        assert used > kept.outside_mb + sum(leased) + (own or 0) + POLICY.tolerance_mb


def a_waiter(since: float, could: str = "ab") -> tuple[float, Refusal]:
    return since, Refusal(reason=RefusalReason.LEASED, detail="", could_hold=frozenset(could))


def test_one_that_does_not_fit_is_overtaken_for_a_bounded_time_only() -> None:
    limit = OVERTAKEN.total_seconds()
    assert reserved_by([a_waiter(0)], limit - 0.1) == frozenset()
    assert reserved_by([a_waiter(0)], limit) == frozenset("ab")
    assert reserved_by([a_waiter(0), a_waiter(5, "cd")], limit) == frozenset("ab")
    assert reserved_by([a_waiter(0), a_waiter(5, "cd")], limit + 5) == frozenset("abcd")


def test_who_asks_for_at_least_as_much_as_one_that_was_refused_is_not_tried() -> None:
    small, large = LeaseSpec(memory_mb=1000), LeaseSpec(memory_mb=8000)
    assert large.as_hard_as(small) and not small.as_hard_as(large)
    assert replace(large, exclusive=True).as_hard_as(small)
    assert not large.as_hard_as(replace(small, exclusive=True))
    assert not replace(large, node="n").as_hard_as(small)


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
