"""The policy that aims at a wait, and that nothing it wants breaks what every decision keeps."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herdsman.fleet.actions import DrainIdleWorker, Note, SpawnWorker
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling import (
    RECENT,
    Demand,
    Load,
    adaptive,
    coming,
    crowding,
    most_coming,
    rise,
    spans,
    threshold,
)
from herdsman.fleet.snapshot import Snapshot
from herdsman.states import WorkerStatus
from tests.support.fleets import NOW, POOL, a_job, a_snapshot, a_worker, minutes, seconds, snapshots

NOBODY = (0,) * RECENT
KNOWN = Demand(arrivals=NOBODY, service_s=(60.0,) * 20, boots_s=(90.0,) * 5)
PATIENT = settings(suppress_health_check=[HealthCheck.too_slow])
"""A whole sight takes its time to make where the machine has other work."""
RULES = FleetPolicy(min_workers=0, max_workers=50, scaling="adaptive", target_wait=minutes(5))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    spans_s = st.lists(st.floats(0, 5000), max_size=10).map(tuple)
    return Demand(
        arrivals=tuple(draw(st.lists(st.integers(0, 300), max_size=RECENT))),
        day_before=draw(st.none() | st.tuples(st.integers(0, 500), st.integers(0, 500))),
        service_s=draw(spans_s),
        boots_s=draw(spans_s),
        waits_s=draw(spans_s),
        failing=draw(st.floats(0, 1)),
    )


@st.composite
def adaptive_snapshots(draw: st.DrawFn) -> Snapshot:
    seen, known = draw(snapshots()), draw(demands())
    pool = seen.pools[0]
    target = seconds(draw(st.integers(1, 2000)))
    rules = replace(pool.policy, scaling="adaptive", target_wait=target)
    return replace(seen, pools=(replace(pool, policy=rules, demand=known),))


@PATIENT
@given(adaptive_snapshots())
def test_a_plan_leaves_nothing_more_to_plan(seen: Snapshot) -> None:
    again = decide(decide(seen).expected).actions
    assert [action for action in again if not isinstance(action, Note)] == []


@PATIENT
@given(adaptive_snapshots())
def test_neither_the_ceiling_nor_the_floor_is_passed(seen: Snapshot) -> None:
    plan, rules = decide(seen), seen.pools[0].policy
    if any(isinstance(action, SpawnWorker) for action in plan.actions):
        assert plan.expected.alive(POOL) <= rules.max_workers
    if any(isinstance(each, DrainIdleWorker) and each.reason.code == "IDLE" for each in plan.actions):
        left = sum(1 for _ in plan.expected.of(POOL, WorkerStatus.ACTIVE))
        assert left >= min(rules.min_workers, rules.max_workers)


@PATIENT
@given(adaptive_snapshots())
def test_no_worker_with_a_job_is_drained_and_the_same_sight_gives_the_same_plan(seen: Snapshot) -> None:
    plan = decide(seen)
    busy = {worker.id for worker in seen.workers if worker.job is not None}
    assert not [each for each in plan.actions if isinstance(each, DrainIdleWorker) and each.worker_id in busy]
    assert plan == decide(seen)


@PATIENT
@given(adaptive_snapshots(), st.integers(1, 200))
def test_a_longer_queue_never_asks_for_fewer(seen: Snapshot, more: int) -> None:
    longer = replace(seen, pools=(replace(seen.pools[0], queued=seen.pools[0].queued + more),))
    assert _spawns(longer) >= _spawns(seen)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Any that a pool may show, with a history."""
    ages = st.floats(0, 3000).map(seconds)
    held, starting = draw(st.lists(ages, max_size=8)), draw(st.lists(ages, max_size=8))
    known = replace(draw(demands()), service_s=tuple(draw(st.lists(st.floats(0, 5000), min_size=1, max_size=10))))
    return Load(
        queued=draw(st.integers(0, 300)),
        active=len(held) + draw(st.integers(0, 20)),
        spawning=len(starting),
        busy=len(held),
        since_scaled=draw(st.none() | ages),
        held_for=tuple(held),
        starting_for=tuple(starting),
        failures=draw(st.integers(0, 5)),
        starts=5,
        demand=known,
    )


@st.composite
def rules(draw: st.DrawFn) -> FleetPolicy:
    least, more = draw(st.integers(0, 10)), draw(st.integers(0, 60))
    target, look = seconds(draw(st.integers(1, 2000))), seconds(draw(st.integers(1, 120)))
    return replace(RULES, min_workers=least, max_workers=least + more, target_wait=target, look_every=look)


@given(loads(), rules())
def test_its_answer_lies_between_the_floor_and_the_ceiling(load: Load, policy: FleetPolicy) -> None:
    found = adaptive(load, policy)
    assert policy.min_workers <= found.grow_to <= policy.max_workers
    assert policy.min_workers <= found.keep <= policy.max_workers


@given(loads(), rules())
def test_its_sentence_never_counts_below_nothing(load: Load, policy: FleetPolicy) -> None:
    assert "-" not in adaptive(load, policy).said


@given(loads(), rules(), st.integers(1, 200))
def test_more_backlog_never_wants_or_keeps_fewer(load: Load, policy: FleetPolicy, more: int) -> None:
    longer = replace(load, queued=load.queued + more)
    assert adaptive(longer, policy).grow_to >= adaptive(load, policy).grow_to
    assert adaptive(longer, policy).keep >= adaptive(load, policy).keep


@given(loads(), rules(), st.integers(0, 50), st.integers(1, 50))
def test_more_late_jobs_never_want_or_keep_fewer(load: Load, policy: FleetPolicy, late: int, more: int) -> None:
    target = policy.target_wait.total_seconds()

    def wanted(count: int) -> tuple[int, int]:
        assert load.demand is not None
        waits = (target + 1,) * count + (0.0,) * (100 - count)
        found = adaptive(replace(load, demand=replace(load.demand, waits_s=waits)), policy)
        return found.grow_to, found.keep

    before, after = wanted(late), wanted(late + more)
    assert after[0] >= before[0]
    assert after[1] >= before[1]


@given(loads(), rules())
def test_who_was_asked_for_is_enough_and_is_not_sent_away_again(load: Load, policy: FleetPolicy) -> None:
    """On a load that stays the same, its mind changes once: the next look wants no more."""
    wanted = adaptive(load, policy).grow_to
    asked = max(0, wanted - load.capacity)
    starting = (*load.starting_for, *(seconds(0),) * asked)
    following = replace(load, spawning=load.spawning + asked, starting_for=starting)
    assert adaptive(following, policy).grow_to <= max(wanted, load.capacity)


@given(loads(), rules())
def test_it_explains_itself_in_one_sentence_with_its_numbers(load: Load, policy: FleetPolicy) -> None:
    found = adaptive(load, policy)
    assert found.said.startswith(f"{load.queued} jobs wait")
    assert f"{policy.target_wait.total_seconds():.0f}s" in found.said
    assert "\n" not in found.said
    assert ". " not in found.said
    assert found.terms["queued"] == load.queued


def test_without_any_history_it_does_what_threshold_does() -> None:
    load = Load(queued=20, active=2, busy=2)
    found, usual = adaptive(load, RULES), threshold(load, RULES)
    assert (found.grow_to, found.keep) == (usual.grow_to, usual.keep)
    assert "none has been done yet" in found.said


def test_a_queue_that_is_done_in_time_asks_for_nobody() -> None:
    """Four free workers begin 4 x (1 + 277/60) jobs within five minutes."""
    free = Load(queued=20, active=4, demand=KNOWN)
    assert adaptive(free, RULES).grow_to == 4
    assert adaptive(replace(free, queued=40), RULES).grow_to > 4


def test_a_shorter_target_asks_for_more() -> None:
    load = Load(queued=60, active=2, busy=2, held_for=(seconds(1), seconds(1)), demand=KNOWN)
    wanted = [adaptive(load, replace(RULES, target_wait=minutes(each))).grow_to for each in (3, 5, 10, 30)]
    assert wanted == sorted(wanted, reverse=True)
    assert wanted[0] > wanted[-1]


def test_workers_that_start_are_counted_and_those_that_fail_are_discounted() -> None:
    waiting = Load(queued=30, demand=KNOWN)
    alone = adaptive(waiting, RULES).grow_to
    coming_already = replace(waiting, spawning=alone, starting_for=(seconds(0),) * alone)
    assert adaptive(coming_already, RULES).grow_to == alone
    assert adaptive(replace(waiting, failures=3, starts=6), RULES).grow_to > alone


def test_nobody_is_sent_away_for_a_while_after_a_change_but_a_queue_need_not_wait() -> None:
    """Who starts is counted, so that a second look does not ask for them again."""
    just = Load(queued=0, active=5, since_scaled=seconds(10), demand=KNOWN)
    assert adaptive(just, RULES).keep == 5
    assert adaptive(replace(just, since_scaled=minutes(5)), RULES).keep == 0
    assert adaptive(replace(just, queued=500), RULES).grow_to == RULES.max_workers


def test_what_comes_often_is_waited_for_where_a_start_takes_too_long() -> None:
    """Nobody waits now; but with a target below a start, what comes within it must find somebody."""
    often = replace(KNOWN, arrivals=(30,) * RECENT)
    short = replace(RULES, target_wait=seconds(20))
    assert adaptive(Load(queued=0, demand=often), short).grow_to > 0
    assert adaptive(Load(queued=0, demand=often), RULES).grow_to == 0
    assert adaptive(Load(queued=0, demand=KNOWN), short).grow_to == 0


def test_who_is_there_is_kept_for_the_most_that_may_come_though_nobody_was_late() -> None:
    """Where starts are slow: then fewer are asked for, but as many are kept."""
    never = replace(KNOWN, arrivals=(30,) * RECENT, waits_s=(0.0,) * 200)
    as_often_as_allowed = replace(never, waits_s=(60.0,) * 6 + (0.0,) * 194)
    short = replace(RULES, target_wait=seconds(20))
    sure, wary = (adaptive(Load(queued=0, active=0, demand=each), short) for each in (never, as_often_as_allowed))
    assert sure.grow_to < wary.grow_to
    assert sure.keep == wary.keep


def test_it_says_why_in_one_sentence() -> None:
    seen = a_snapshot(queued=40, policy=RULES, demand=KNOWN)
    first = next(each for each in decide(seen).actions if isinstance(each, SpawnWorker))
    assert first.reason.text.startswith("40 jobs wait")
    assert "keep the wait near 300s" in first.reason.text
    assert first.reason.numbers["service_s"] == 60


def drained(idle: float, policy: FleetPolicy) -> bool:
    worker = a_worker(idle_since=NOW - seconds(idle))
    seen = a_snapshot(worker, policy=policy, demand=KNOWN)
    return any(isinstance(each, DrainIdleWorker) for each in decide(seen).actions)


def test_an_idle_worker_goes_soon_where_another_would_be_there_in_time() -> None:
    assert drained(25, RULES)
    assert not drained(20, RULES)
    assert not drained(25, replace(RULES, scaling="threshold"))
    assert drained(15, replace(RULES, idle_timeout=seconds(10))), "the settings may be shorter still"


def test_an_idle_worker_is_kept_for_a_start_where_another_would_be_late() -> None:
    short = replace(RULES, target_wait=seconds(30))
    assert drained(95, short)
    assert not drained(85, short)


def test_more_are_asked_for_than_jobs_wait_where_some_starts_are_slow() -> None:
    """Ten long jobs: with starts of which a quarter come too late, ten workers would begin seven or eight in time."""
    long = replace(KNOWN, service_s=(3600.0,) * 20)
    surely = adaptive(Load(queued=10, demand=long), RULES).grow_to
    slow = replace(long, boots_s=(60.0, 80.0, 100.0, 600.0))
    assert surely == 10
    assert 13 <= adaptive(Load(queued=10, demand=slow), RULES).grow_to <= 20


def test_what_was_late_is_made_up_for_and_what_was_not_is_saved() -> None:
    """A single job, a start that is in time three times in four, and a hundred jobs of which none or some were late."""
    often = replace(KNOWN, service_s=(3600.0,) * 20, boots_s=(60.0, 80.0, 100.0, 600.0))

    def asked(late: int) -> int:
        waits = (400.0,) * late + (0.0,) * (100 - late)
        return adaptive(Load(queued=1, demand=replace(often, waits_s=waits)), RULES).grow_to

    assert [asked(late) for late in (0, 4, 20)] == [1, 2, 3]


def test_starts_that_failed_long_ago_count_as_well() -> None:
    waiting = Load(queued=30, demand=KNOWN)
    failing = replace(waiting, demand=replace(KNOWN, failing=0.3))
    assert adaptive(failing, RULES).grow_to > adaptive(waiting, RULES).grow_to


def test_a_start_that_takes_longer_than_any_is_taken_for_one_that_failed() -> None:
    """Only where starts fail at all: then another is asked for before the first is given up."""
    long = replace(KNOWN, service_s=(3600.0,) * 20)
    late = Load(queued=1, spawning=1, starting_for=(seconds(200),), demand=replace(long, failing=0.3))
    young = replace(late, starting_for=(seconds(10),))
    assert adaptive(late, RULES).grow_to > adaptive(young, RULES).grow_to


def test_a_job_that_has_lasted_long_is_expected_to_last() -> None:
    took = spans((10.0, 20.0, 1000.0))
    assert took.ends_within(0, 30) == (pytest.approx(2 / 3), 15)
    assert took.ends_within(30, 30) == (0.0, 30)
    chance, _ = took.ends_within(3000, 30)
    assert 0 < chance < 0.02


def test_yesterday_tells_a_rise_only_where_it_was_no_accident() -> None:
    today = replace(KNOWN, arrivals=(10,) * RECENT)
    assert rise(today) == 1
    assert rise(replace(today, day_before=(30, 33))) == 1
    assert rise(replace(today, day_before=(30, 75))) == 2.5
    assert coming(replace(today, day_before=(30, 75))) == pytest.approx(2.5 * coming(today))


def test_crowds_are_told_from_jumps_and_not_from_a_slow_rise() -> None:
    assert crowding(replace(KNOWN, arrivals=tuple(range(10, 22))), 300) == 1
    assert crowding(replace(KNOWN, arrivals=(0, 40) * 6), 300) > 20
    assert most_coming(replace(KNOWN, arrivals=(0, 40) * 6), 60) > most_coming(
        replace(KNOWN, arrivals=(20,) * RECENT), 60
    )


def test_the_time_at_a_job_is_counted_from_its_claim() -> None:
    job = replace(a_job(age=seconds(5)), begun=NOW - seconds(50))
    seen = a_snapshot(a_worker(job=job), queued=9, policy=RULES, demand=KNOWN)
    later = a_snapshot(a_worker(job=replace(job, begun=NOW)), queued=9, policy=RULES, demand=KNOWN)
    assert _spawns(seen) <= _spawns(later)


def _spawns(seen: Snapshot) -> int:
    return sum(1 for action in decide(seen).actions if isinstance(action, SpawnWorker))
