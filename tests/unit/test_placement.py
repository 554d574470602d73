"""Which waiting job a worker gets (S2: model affinity, turns)."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from herdsman.jobs.rules import Head, JobSelector, Loaded, best, shares
from tests.support.selector import accepts

MODELS = ("a", "b", "c")
heads = st.lists(st.builds(Head, st.sampled_from([None, *MODELS]), st.integers(0, 20), st.booleans()), max_size=6)
some_models = st.frozensets(st.sampled_from(MODELS))
loads = st.builds(Loaded, here=some_models, elsewhere=some_models, settled=st.booleans())


def test_a_job_goes_where_its_model_is_loaded() -> None:
    waiting = [Head("a", 1), Head("b", 2)]
    assert best(waiting, Loaded(here={"b"}, elsewhere={"a"})) == Head("b", 2)


def test_a_job_of_a_model_that_another_has_loaded_waits_for_that_one() -> None:
    assert best([Head("a", 1)], Loaded(here={"b"}, elsewhere={"a"})) is None


def test_a_job_that_has_waited_long_enough_goes_to_anybody() -> None:
    late = Head("a", 1, overdue=True)
    assert best([late, Head("b", 2)], Loaded(here={"b"}, elsewhere={"a"})) == late
    assert best([late], Loaded(here={"b"}, elsewhere={"a"}, settled=False)) == late


def test_who_has_just_changed_its_model_keeps_it_while_there_are_jobs_for_it() -> None:
    late = Head("a", 1, overdue=True)
    assert best([late, Head("b", 2)], Loaded(here={"b"}, settled=False)) == Head("b", 2)


def test_a_model_that_nobody_has_is_taken_by_who_has_nothing_else() -> None:
    assert best([Head("a", 1)], Loaded(here={"b"})) == Head("a", 1)
    assert best([Head("a", 1), Head("b", 2)], Loaded(here={"b"})) == Head("b", 2)


@given(heads, loads)
def test_an_overdue_job_does_not_wait_for_its_model(waiting: list[Head], loaded: Loaded) -> None:
    """The bound on waiting: with a settled worker, none that came before the chosen one in line is overdue."""
    chosen = best(waiting, loaded)
    overdue = [head.place for head in waiting if head.overdue]
    if overdue:
        assert chosen is not None
        assert chosen.place <= min(overdue) or not loaded.settled


@given(heads, loads)
def test_a_worker_changes_its_model_only_when_it_must(waiting: list[Head], loaded: Loaded) -> None:
    """What it has loaded, or what needs no model, comes before any change that is not overdue."""
    chosen = best(waiting, loaded)
    if chosen is None or chosen.model is None or chosen.model in loaded.here:
        return
    if not (chosen.overdue and loaded.settled):
        assert not [head for head in waiting if head.model is None or head.model in loaded.here]


@given(heads, loads)
def test_a_job_that_names_no_model_is_never_held_back(waiting: list[Head], loaded: Loaded) -> None:
    free = [head.place for head in waiting if head.model is None]
    chosen = best(waiting, loaded)
    assert not free or (chosen is not None and chosen.place <= min(free))


@given(st.integers(1, 4), st.integers(1, 10), st.integers(1, 3))
def test_models_that_arrive_in_turns_do_not_make_a_worker_change_with_each_job(
    dwell: int, bound: int, arriving: int
) -> None:
    """One worker, far more jobs than it can do, of two models in turns: one change in `dwell` at most."""
    waiting = {("a", 0), ("b", 0)}
    here, changed_at, changes, minutes = "a", -dwell, 0, 120
    for minute in range(1, minutes):
        waiting |= {(model, minute * 10 + number) for model in "ab" for number in range(arriving)}
        heads = [
            Head(model, place, overdue=minute - place // 10 >= bound)
            for model in "ab"
            for place in [min(at for kind, at in waiting if kind == model)]
        ]
        chosen = best(heads, Loaded(here={here}, settled=minute - changed_at >= dwell))
        assert chosen is not None
        assert chosen.model is not None
        waiting.remove((chosen.model, chosen.place))
        if chosen.model != here:
            here, changed_at, changes = chosen.model, minute, changes + 1
    assert changes <= minutes / dwell


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True), st.integers(0, 50))
def test_shares_differ_by_one_at_most_and_use_everything(agents: list[str], count: int) -> None:
    dealt = shares(agents, count)
    assert sum(dealt.values()) == count
    each = [dealt.get(agent, 0) for agent in agents]
    assert max(each) - min(each) <= 1


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Job:
    place: int
    type: str = "demo"
    agent: str = "a"
    model: str | None = None
    concurrency_key: str | None = None
    gpu_memory_mb: int | None = None
    allow_cpu: bool = False
    run_at: datetime = NOON


names = st.sampled_from(["x", "y", "z"])
some = st.frozensets(names)
waiting_jobs = st.lists(
    st.builds(
        Job,
        place=st.integers(0, 20),
        type=names,
        agent=names,
        model=st.none() | st.sampled_from(MODELS),
        concurrency_key=st.none() | names,
        gpu_memory_mb=st.none() | st.integers(1, 3),
        allow_cpu=st.booleans(),
        run_at=st.sampled_from([NOON, NOON - timedelta(hours=1)]),
    ),
    max_size=8,
)
selectors = st.builds(
    JobSelector,
    types=some,
    not_types=some,
    only_agents=st.none() | some,
    not_agents=some,
    not_keys=some,
    room_mb=st.none() | st.integers(1, 3),
    no_gpu=st.booleans(),
    loaded=loads,
    overdue_before=st.just(NOON - timedelta(minutes=1)),
)


@given(waiting_jobs, selectors)
def test_j13_one_of_the_jobs_that_a_worker_may_take_is_chosen_whatever_else_waits(
    jobs: list[Job], wanted: JobSelector
) -> None:
    assert wanted.loaded is not None
    assert wanted.overdue_before is not None
    taken = [job for job in jobs if accepts(wanted, job)]
    heads = [Head(job.model, job.place, job.run_at <= wanted.overdue_before) for job in taken]
    assert (best(heads, wanted.loaded) is not None) == bool(taken)


@given(waiting_jobs, selectors)
def test_what_a_worker_may_not_take_is_never_better_than_nothing(jobs: list[Job], wanted: JobSelector) -> None:
    """A model that another has loaded is left to it, by both rules alike."""
    assert wanted.loaded is not None
    assert wanted.overdue_before is not None
    models = JobSelector(loaded=wanted.loaded, overdue_before=wanted.overdue_before)
    for job in jobs:
        head = Head(job.model, job.place, job.run_at <= wanted.overdue_before)
        assert (best([head], wanted.loaded) is None) == (not accepts(models, job))


def test_a_job_that_wants_all_of_a_gpu_does_not_fit_where_others_are_on_it() -> None:
    assert not accepts(JobSelector(room_mb=100_000), Job(1))
    assert accepts(JobSelector(room_mb=100), Job(1, gpu_memory_mb=100))


def test_a_job_that_needs_a_gpu_fits_no_worker_without_one_unless_it_allows_a_cpu() -> None:
    bare = JobSelector(no_gpu=True)
    assert accepts(bare, Job(1))
    assert not accepts(bare, Job(1, gpu_memory_mb=1))
    assert accepts(bare, Job(1, gpu_memory_mb=1, allow_cpu=True))
