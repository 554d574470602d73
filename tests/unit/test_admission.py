"""Who is let in: never more than the rate and the burst allow, and down the ladder one step at a time."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest, Overloaded, TooMany
from herdsman.ids import PoolId
from herdsman.jobs.model import NewJob
from herdsman.limits.control_policy import AgentLimits, ControlPolicy, Gates
from herdsman.limits.rules import (
    SET_BACK,
    Accept,
    AdmissionState,
    AgentUsage,
    Bucket,
    Closed,
    ClosedGate,
    Defer,
    Limit,
    Load,
    Reject,
    Reroute,
    gates_now,
    judge,
    judge_all,
    over_queued,
    refilled,
    stays_closed,
    wait_for,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPU, BIG, SMALL = PoolId("cpu"), PoolId("big"), PoolId("small")
SECOND = timedelta(seconds=1)

rates = st.floats(0.01, 1000)
capacities = st.integers(1, 500)
steps = st.lists(st.floats(0, 30), min_size=1, max_size=60)


def a_job(**wanted: Any) -> NewJob:
    asked: dict[str, Any] = {"type": "demo", "agent": "ann", "pool": BIG, **wanted}
    return NewJob(**asked)


def a_policy(**limits: Any) -> ControlPolicy:
    """With a pool for CPUs, and a cheaper one."""
    return ControlPolicy(agents={"ann": AgentLimits(**limits)}, cpu_pool=CPU, cheaper_pools={}, fallback_max_queued=10)


def seen(*, closed: Closed | None = None, waiting: Mapping[PoolId, int] | None = None, **usage: Any) -> AdmissionState:
    return AdmissionState(
        now=NOON, agents={"ann": AgentUsage(**usage)}, closed=closed or {}, waiting=waiting or {CPU: 0}
    )


def tokens(number: float) -> Bucket:
    return Bucket(tokens=number, filled_at=NOON)


EMPTY: dict[str, Any] = {"bucket": tokens(0)}
RATE = a_policy(rate_per_second=2.0, burst=4)


def spend_all(bucket: Bucket, rate: float, capacity: int, now: datetime) -> tuple[Bucket, int]:
    """As many as are to be had at once."""
    bucket, spent = refilled(bucket, rate, capacity, now), 0
    while not wait_for(bucket, rate, 1):
        bucket, spent = replace(bucket, tokens=bucket.tokens - 1), spent + 1
    return bucket, spent


@given(rates, capacities, steps)
def test_no_span_of_time_sees_more_than_the_burst_and_the_rate(rate: float, capacity: int, waits: list[float]) -> None:
    bucket, at, taken = tokens(float(capacity)), 0.0, list[tuple[float, int]]()
    for wait in waits:
        at += wait
        bucket, spent = spend_all(bucket, rate, capacity, NOON + timedelta(seconds=at))
        taken.append((at, spent))
    for index, (begin, _) in enumerate(taken):
        total = 0
        for end, spent in taken[index:]:
            total += spent
            # A microsecond is as fine as our clock is.
            assert total <= capacity + rate * (end - begin + 1e-5) + 1e-3


@given(rates, capacities, st.lists(st.floats(-50, 50), min_size=1, max_size=60))
def test_t2_transactions_that_wait_for_each_other_gain_nothing_by_their_older_clocks(
    rate: float, capacity: int, waits: list[float]
) -> None:
    """Each read the clock before it got the lock, so it comes with an instant that another has passed already."""
    bucket, at, total, latest = tokens(float(capacity)), 0.0, 0, 0.0
    for wait in waits:
        at = max(latest - 55, at + wait, 0.0)
        latest = max(latest, at)
        bucket, spent = spend_all(bucket, rate, capacity, NOON + timedelta(seconds=at))
        total += spent
        assert total <= capacity + rate * (latest + 1e-5) + 1e-3


@given(rates, capacities, st.lists(st.integers(-100_000, 100_000), min_size=1, max_size=40))
def test_t2_whatever_the_clock_does_a_bucket_is_neither_overfull_nor_stuck(
    rate: float, capacity: int, jumps: list[int]
) -> None:
    bucket, now = tokens(float(capacity)), NOON
    for jump in jumps:
        now += timedelta(seconds=jump)
        bucket, spent = spend_all(bucket, rate, capacity, now)
        assert spent <= capacity
        assert -1e-3 <= bucket.tokens <= capacity
    # From here on the clock runs as it should: the next token comes when it must, or the bit later that was forgiven.
    later = now + wait_for(bucket, rate, 1) + SET_BACK + SECOND
    assert not wait_for(refilled(refilled(bucket, rate, capacity, now), rate, capacity, later), rate, 1)


def test_t2_a_clock_that_was_set_back_gives_nothing_twice_and_goes_on() -> None:
    spent = refilled(tokens(0), 1, 10, NOON + timedelta(seconds=5))
    back = refilled(spent, 1, 10, NOON - timedelta(hours=1))
    assert back == Bucket(tokens=5, filled_at=NOON - timedelta(hours=1))
    assert refilled(back, 1, 10, NOON - timedelta(hours=1) + SECOND).tokens == 6


def test_who_is_within_its_limits_is_let_in() -> None:
    assert judge(a_job(), RATE, seen(bucket=tokens(1))) == Accept()
    assert judge(a_job(agent="bob"), RATE, seen(bucket=tokens(0))) == Accept()


def test_without_a_token_a_job_is_refused_until_there_is_one() -> None:
    verdict = judge(a_job(), RATE, seen(bucket=tokens(0.5)))
    assert isinstance(verdict, Reject)
    assert (verdict.code, verdict.retry_after) == (Limit.RATE, timedelta(seconds=0.25))
    error = verdict.error()
    assert isinstance(error, TooMany)
    assert not isinstance(error, Overloaded)


def test_a_job_that_may_wait_is_put_off_just_as_long_as_it_must() -> None:
    patient = a_job(max_defer=SECOND)
    assert judge(patient, RATE, seen(**EMPTY)) == Defer(until=NOON + SECOND / 2, code=Limit.RATE)
    assert isinstance(judge(patient, RATE, seen(bucket=tokens(-2))), Reject), "1.5 s is longer than it may"


def test_jobs_that_were_put_off_have_taken_their_tokens_and_come_one_after_the_other() -> None:
    verdicts, left = judge_all([a_job(max_defer=10 * SECOND)] * 4, RATE, seen(**EMPTY))
    assert isinstance(verdicts, list)
    untils = [verdict.until for verdict in verdicts if isinstance(verdict, Defer)]
    assert untils == [NOON + number * SECOND / 2 for number in (1, 2, 3, 4)]
    assert left.agents["ann"].bucket == tokens(-4)


def test_what_cannot_wait_goes_to_the_cheaper_pool_then_to_cpus_then_away() -> None:
    policy = replace(RATE, cheaper_pools={BIG: SMALL})
    job = a_job(allow_cpu=True)
    there = {SMALL: 9, CPU: 9}
    assert judge(job, policy, seen(**EMPTY, waiting=there)) == Reroute(pool=SMALL, code=Limit.RATE, unpaid=True)
    assert judge(job, policy, seen(**EMPTY, waiting=there | {SMALL: 10})) == Reroute(
        pool=CPU, code=Limit.RATE, unpaid=True
    )
    assert isinstance(judge(job, policy, seen(**EMPTY, waiting={SMALL: 10, CPU: 10})), Reject)
    assert isinstance(judge(a_job(), RATE, seen(**EMPTY)), Reject), "nobody asked whether CPUs will do"


def test_a_job_that_was_sent_away_costs_no_token_and_fills_the_pool_it_went_to() -> None:
    verdicts, left = judge_all([a_job(allow_cpu=True)] * 3, RATE, seen(bucket=tokens(1)))
    assert verdicts == [Accept(), *[Reroute(pool=CPU, code=Limit.RATE, unpaid=True)] * 2]
    assert (left.agents["ann"].bucket, left.waiting) == (tokens(0), {CPU: 2})


def test_another_pool_is_no_way_round_the_number_of_waiting_jobs() -> None:
    policy = a_policy(max_queued=3)
    verdict = judge(a_job(allow_cpu=True, max_defer=timedelta(days=1)), policy, seen(queued=3, shut=True))
    assert isinstance(verdict, Reject)
    assert verdict.code is Limit.QUEUED


def test_who_has_used_up_the_day_waits_for_midnight_in_utc_or_goes_without_gpus() -> None:
    policy = replace(a_policy(gpu_seconds_per_day=60.0), cheaper_pools={BIG: SMALL})
    used = seen(gpu_seconds=60.0, waiting={SMALL: 0, CPU: 0})
    verdict = judge(a_job(), policy, used)
    assert isinstance(verdict, Reject)
    assert (verdict.code, verdict.retry_after) == (Limit.GPU_SECONDS, timedelta(hours=12))
    assert judge(a_job(max_defer=timedelta(hours=12)), policy, used) == Defer(
        until=NOON + timedelta(hours=12), code=Limit.GPU_SECONDS
    )
    assert judge(a_job(allow_cpu=True), policy, used) == Reroute(pool=CPU, code=Limit.GPU_SECONDS)
    assert judge(a_job(pool=CPU), policy, used) == Accept()


def test_a_gate_is_for_all_but_the_pool_for_cpus() -> None:
    policy = replace(ControlPolicy(cpu_pool=CPU), cheaper_pools={BIG: SMALL})
    closed = {Limit.GPU_MEMORY: ClosedGate(until=NOON + 7 * SECOND, detail="95 % of the GPU memory is in use")}
    world = seen(closed=closed)
    verdict = judge(a_job(), policy, world)
    assert isinstance(verdict, Reject)
    assert (verdict.retry_after, type(verdict.error())) == (7 * SECOND, Overloaded)
    assert judge(a_job(pool=CPU), policy, world) == Accept()
    assert judge(a_job(allow_cpu=True), policy, world) == Reroute(pool=CPU, code=Limit.GPU_MEMORY)
    assert judge(a_job(max_defer=7 * SECOND), policy, world) == Defer(until=NOON + 7 * SECOND, code=Limit.GPU_MEMORY)


def test_a_deep_queue_sends_jobs_to_the_cheaper_pool_and_is_not_waited_for() -> None:
    policy = ControlPolicy(cheaper_pools={BIG: SMALL})
    world = seen(closed={Limit.DEPTH: ClosedGate(detail="deep")})
    assert judge(a_job(), policy, world) == Reroute(pool=SMALL, code=Limit.DEPTH)
    verdict = judge(a_job(pool=SMALL, max_defer=timedelta(days=1)), policy, world)
    assert isinstance(verdict, Reject)


def test_a_request_is_let_in_whole_or_waits_for_all_of_its_tokens() -> None:
    """J10"""
    refused, left = judge_all([a_job()] * 3, RATE, seen(bucket=tokens(1)))
    assert isinstance(refused, TooMany)
    assert (refused.retry_after, left) == (SECOND, seen(bucket=tokens(1)))


def test_a_request_that_can_never_come_in_is_told_so() -> None:
    refused, _ = judge_all([a_job()] * 5, RATE, seen(bucket=tokens(4)))
    assert isinstance(refused, InvalidRequest)
    assert "never more than 4" in str(refused)
    refused, _ = judge_all([a_job()] * 3, a_policy(max_queued=2), seen())
    assert isinstance(refused, InvalidRequest)


def test_between_the_marks_everything_stays_as_it_was() -> None:
    assert not stays_closed(shut=False, value=9, high=10, low=5)
    assert stays_closed(shut=False, value=10, high=10, low=5)
    assert stays_closed(shut=True, value=6, high=10, low=5)
    assert not stays_closed(shut=True, value=5, high=10, low=5)
    assert stays_closed(shut=True, value=10, high=10, low=None)
    assert not stays_closed(shut=True, value=9, high=10, low=None)
    limits = AgentLimits(max_queued=10, resume_queued=5)
    assert over_queued(limits, 7, shut=True)
    assert not over_queued(limits, 7, shut=False)


@given(st.lists(st.integers(0, 20), max_size=50), st.integers(1, 20), st.integers(0, 19))
def test_a_gate_is_closed_from_the_upper_mark_until_the_lower_one(values: list[int], high: int, low: int) -> None:
    low, shut = min(low, high - 1), False
    for value in values:
        now = stays_closed(shut=shut, value=value, high=high, low=low)
        assert now or value < high
        assert not now or value > low
        assert now == shut or (value >= high if now else value <= low)
        shut = now


MEMORY = Gates(gpu_memory_high_pct=90.0, gpu_memory_hold=timedelta(seconds=40))
FULL = Load(now=NOON, gpu_used_mb=95, gpu_total_mb=100)


def test_memory_above_the_mark_closes_for_a_time_that_begins_anew_while_it_lasts() -> None:
    closed = gates_now(MEMORY, FULL, {})
    assert closed[Limit.GPU_MEMORY].until == NOON + 40 * SECOND
    soon = gates_now(MEMORY, replace(FULL, now=NOON + SECOND), closed)
    assert soon == closed, "a second later is no news"
    later = gates_now(MEMORY, replace(FULL, now=NOON + 20 * SECOND), closed)
    assert later[Limit.GPU_MEMORY].until == NOON + 60 * SECOND
    calm = Load(now=NOON + 30 * SECOND, gpu_used_mb=10, gpu_total_mb=100)
    assert gates_now(MEMORY, calm, closed) == closed, "it is held to its end"
    assert gates_now(MEMORY, replace(calm, now=NOON + 40 * SECOND), closed) == {}


def test_without_a_measurement_no_gate_is_closed() -> None:
    assert gates_now(MEMORY, Load(now=NOON), {}) == {}


def test_t2_a_hold_does_not_outlast_a_clock_that_was_set_back() -> None:
    closed = gates_now(MEMORY, FULL, {})
    assert gates_now(MEMORY, Load(now=NOON - timedelta(hours=1)), closed) == {}


def test_depth_and_age_have_marks_of_their_own() -> None:
    gates = Gates(queue_high=10, queue_low=5, oldest_high=60 * SECOND, oldest_low=30 * SECOND)
    deep = gates_now(gates, Load(now=NOON, depth=10, oldest=30 * SECOND), {})
    assert deep.keys() == {Limit.DEPTH}
    old = gates_now(gates, Load(now=NOON, depth=6, oldest=60 * SECOND), deep)
    assert old.keys() == {Limit.DEPTH, Limit.OLDEST}
    assert gates_now(gates, Load(now=NOON, depth=5, oldest=31 * SECOND), old).keys() == {Limit.OLDEST}
    assert gates_now(gates, Load(now=NOON, depth=5, oldest=None), old) == {}


jobs = st.builds(
    NewJob,
    type=st.just("demo"),
    agent=st.sampled_from(["ann", "bob"]),
    pool=st.sampled_from([BIG, SMALL, CPU]),
    allow_cpu=st.booleans(),
    max_defer=st.none() | st.timedeltas(SECOND, timedelta(days=1)),
)
usages = st.builds(
    AgentUsage,
    bucket=st.floats(-5, 10).map(tokens),
    queued=st.integers(0, 12),
    shut=st.booleans(),
    gpu_seconds=st.floats(0, 200),
)
gates = st.dictionaries(
    st.sampled_from([Limit.GPU_MEMORY, Limit.DEPTH, Limit.OLDEST]),
    st.builds(ClosedGate, until=st.none() | st.timedeltas(SECOND, timedelta(hours=1)).map(lambda t: NOON + t)),
)
worlds = st.builds(
    AdmissionState,
    now=st.just(NOON),
    agents=st.fixed_dictionaries({"ann": usages}),
    closed=gates,
    waiting=st.fixed_dictionaries({CPU: st.integers(0, 20), SMALL: st.integers(0, 20)}),
)
policies = st.builds(
    ControlPolicy,
    agents=st.fixed_dictionaries(
        {
            "ann": st.builds(
                AgentLimits,
                rate_per_second=st.floats(0.1, 10),
                burst=st.integers(1, 10),
                max_queued=st.none() | st.integers(0, 12),
                gpu_seconds_per_day=st.none() | st.floats(0, 100),
            )
        }
    ),
    cpu_pool=st.sampled_from([None, CPU]),
    cheaper_pools=st.sampled_from([{}, {BIG: SMALL}]),
    fallback_max_queued=st.none() | st.integers(0, 20),
)


@given(jobs, policies, worlds)
def test_each_step_of_the_ladder_is_taken_only_within_what_was_allowed(
    job: NewJob, policy: ControlPolicy, world: AdmissionState
) -> None:
    match judge(job, policy, world):
        case Defer(until=until):
            assert job.max_defer is not None
            assert NOON <= until <= NOON + job.max_defer
        case Reroute(pool=pool):
            assert pool == policy.cheaper_pools.get(job.pool) or (job.allow_cpu and pool == policy.cpu_pool)
            most = policy.fallback_max_queued
            assert most is None or world.waiting[pool] < most
        case Reject(retry_after=wait, detail=detail):
            assert wait > timedelta(0)
            assert detail
        case Accept():
            assert job.pool == policy.cpu_pool or not world.closed


@given(st.lists(jobs, min_size=1, max_size=8), policies, worlds)
def test_j10_a_refused_request_changes_nothing(
    batch: list[NewJob], policy: ControlPolicy, world: AdmissionState
) -> None:
    answer, left = judge_all(batch, policy, world)
    if isinstance(answer, Exception):
        assert left == world
    else:
        assert len(answer) == len(batch)


@pytest.mark.parametrize(
    ("limits", "most"), [({"rate_per_second": 0.2}, 1), ({"rate_per_second": 2.5}, 3), ({"burst": 9}, 9)]
)
def test_without_a_burst_a_second_s_worth_may_come_at_once(limits: dict[str, Any], most: int) -> None:
    assert AgentLimits(**limits).most_at_once == most
