"""A worker that is told to serve something else: it finishes, starts anew, and says so (S2, swap)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from herdsman.errors import StoreUnavailable
from herdsman.ids import JobId
from herdsman.jobs.protocol import Load, WorkerHeartbeat
from herdsman.states import JobStatus
from herdsman.worker.handler_process import Answer, Exit
from herdsman.worker.stop_rules import ExitReason
from tests.unit.worker.bench import READY, Bench, FakeChild, Play, done, silent

A = Load(revision=1, model="a", adapter="a-style", preload=("vae",))
B = Load(revision=2, model="b")
C = Load(revision=3, model="c")
BROKEN: Answer = {"broken": "the setup load failed"}


def serving_a(play: Play = done) -> Bench:
    bench = Bench(play)
    bench.warm.load = A
    while not bench.warm.get_ready(timedelta(0)):
        pass
    bench.beat()
    return bench


def run_until(bench: Bench, holds: Any, most: int = 2_000) -> None:
    """The supervisor's own loop, until it is so; the bench itself asserts that two processes never live at once."""
    ticks, beaten_at = iter(range(most)), -1.0

    def tick() -> None:
        nonlocal beaten_at
        if bench.clock.monotonic() - beaten_at >= 1:
            beaten_at = bench.clock.monotonic()
            bench.beat()
        if holds() or next(ticks, None) is None:
            bench.supervisor.drain()

    bench.each_tick = tick
    usual = bench.queue.claim

    def claim(ask: Any, wait: timedelta = timedelta(0)) -> Any:
        tick()  # an idle worker listens to nobody but the queue
        return usual(ask, wait)

    bench.queue.claim = claim  # type: ignore[method-assign]
    assert bench.supervisor.run().how is ExitReason.DRAINED
    assert next(ticks, None) is not None, "it never came to be"


def models_of(bench: Bench, number: int) -> set[object]:
    words = [word for word in bench.children[number].sent if "jobs" in word]
    return {job["model"] for word in words for job in word["jobs"]}


def test_the_first_beat_tells_what_is_loaded_and_later_ones_only_what_is_new() -> None:
    bench = serving_a()
    pulses: list[WorkerHeartbeat] = []
    usual = bench.queue.beat

    def beat(heartbeat: WorkerHeartbeat) -> Any:
        pulses.append(heartbeat)
        return usual(heartbeat)

    bench.queue.beat = beat  # type: ignore[method-assign]
    assert (bench.queue.models, bench.queue.revision) == (("a", "vae"), 1)
    bench.beat()
    bench.submit(model="other")
    bench.work()
    bench.beat()
    assert [(each.models, each.revision) for each in pulses] == [(None, None), (("a", "vae", "other"), None)]


def test_what_is_loaded_is_told_again_until_a_beat_is_accepted() -> None:
    bench = Bench()
    bench.warm.load = A
    while not bench.warm.get_ready(timedelta(0)):
        pass

    def cut(_word: str) -> None:
        raise StoreUnavailable("away")

    bench.queue.before = cut
    assert not bench.beat()
    bench.queue.before = lambda _: None
    assert bench.beat()
    assert (bench.queue.models, bench.queue.revision) == (("a", "vae"), 1)


def test_every_claim_tells_what_is_loaded() -> None:
    asked: list[tuple[str, ...]] = []
    bench = serving_a()
    for name in ("claim", "finish"):
        usual = getattr(bench.queue, name)

        def spy(first: Any, second: Any = None, usual: Any = usual) -> Any:
            ask = second if isinstance(first, list) else first
            asked.append(ask.models)
            return usual(first, second or timedelta(0)) if usual.__name__ == "claim" else usual(first, second)

        setattr(bench.queue, name, spy)
    bench.submit(model="other")
    bench.work()
    assert asked == [("a", "vae"), ("a", "vae", "other")]


def test_the_job_at_hand_is_finished_and_the_next_runs_with_what_is_new() -> None:
    """S2, swap: no job is taken between the order and the new process."""

    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        if bench.queue.load is None:
            bench.queue.load = B
            bench.beat()
        done(child, order)

    bench = serving_a(play)
    first, second = bench.submit(), bench.submit()
    run_until(bench, lambda: bench.job(second).state is JobStatus.DONE)
    assert (bench.job(first).state, bench.job(first).token, bench.job(second).token) == (
        JobStatus.DONE,
        1,
        1,
    )
    assert (models_of(bench, 0), models_of(bench, 1)) == ({"a"}, {"b"})
    assert bench.loads == [A, B]
    assert (bench.queue.revision, bench.queue.models, bench.queue.trouble) == (2, ("b",), None)


def test_an_idle_worker_follows_too_and_a_second_order_overtakes_the_first() -> None:
    bench = serving_a()
    bench.queue.load = B
    bench.first = {"hello": 1}  # B never gets ready

    def overtake() -> bool:
        if len(bench.children) == 2 and bench.queue.load is B:
            bench.queue.load, bench.first = C, READY
        return bench.queue.revision == 3

    run_until(bench, overtake)
    assert bench.loads == [A, B, C]
    assert bench.queue.models == ("c",)


def test_an_order_of_the_past_is_none() -> None:
    bench = serving_a()
    assert not bench.warm.is_behind(A)
    assert not bench.warm.is_behind(Load(revision=0, model="z"))
    assert not bench.warm.is_behind(None)
    assert bench.warm.get_ready(timedelta(0), Load(revision=1, model="z"))


def test_a_job_s_own_model_comes_first_and_has_no_adapter_of_another() -> None:
    bench = serving_a()
    for model in (None, "a", "z"):
        bench.submit(model=model)
    bench.work()
    jobs = [job for word in bench.child.sent if "jobs" in word for job in word["jobs"]]
    assert [(job["model"], job["adapter"]) for job in jobs] == [
        ("a", "a-style"),
        ("a", "a-style"),
        ("z", None),
    ]


def test_a_model_that_no_job_could_run_with_is_not_claimed_to_be_there() -> None:
    bench = serving_a(lambda child, order: child.answer(order, {"failure": "user_error", "error": "no such"}))
    bench.submit(model="misspelled")
    bench.work()
    assert bench.queue.models == ("a", "vae")
    bench.queue.models = ("misspelled",)  # as the queue may have guessed when it gave the job away
    bench.beat()
    assert bench.queue.models == ("a", "vae")


def test_what_a_handler_says_is_kept_until_its_process_is_replaced() -> None:
    def play(child: FakeChild, order: Mapping[str, Any]) -> None:
        child.answer(order, {"loaded": ["mine"], "unloaded": ["vae"]})
        child.answers.append({"job": "", "loaded": ["of-a-thread"]})
        done(child, order)

    bench = serving_a(play)
    bench.submit()
    bench.work()
    assert bench.queue.models == ("a", "mine", "of-a-thread")
    bench.warm.end()
    bench.beat()
    assert bench.queue.models == ("a", "vae")


def broken_b(bench: Bench) -> None:
    """What is started with B ends at once."""
    usual = bench.warm.launch

    def launch(load: Load) -> Any:
        bench.first = BROKEN if load == B else READY
        child = usual(load)
        if load == B:
            child.exit = Exit(1)  # type: ignore[attr-defined]
        return child

    bench.warm.launch = launch


def test_a_load_that_cannot_be_had_is_told_and_the_worker_goes_on_with_what_it_had() -> None:
    bench = serving_a()
    broken_b(bench)
    bench.queue.load = B
    last = JobId("last")

    def stalled() -> bool:
        if bench.queue.trouble is not None and not any(job.job_id == last for job in bench.jobs.all()):
            bench.submit(job_id=last)
        return bench.queue.trouble is not None and bench.job(last).state is JobStatus.DONE

    run_until(bench, stalled)
    assert bench.loads == [A, B, B, B, A], "tried as often as any start, and not for ever"
    assert bench.queue.trouble == "revision 2 could not be loaded: the setup load failed"
    assert (bench.queue.revision, bench.queue.models) == (1, ("a", "vae"))
    assert models_of(bench, -1) == {"a"}


def test_a_later_order_ends_the_trouble() -> None:
    bench = serving_a()
    broken_b(bench)
    bench.queue.load = B

    def go_on() -> bool:
        if bench.queue.trouble is not None:
            bench.queue.load = C
        return bench.queue.revision == 3

    run_until(bench, go_on)
    assert bench.queue.trouble is None
    assert bench.loads[-1] == C


def test_a_load_that_takes_too_long_is_tried_once() -> None:
    bench = serving_a()
    bench.queue.load, bench.first = B, {"hello": 1}
    bench.beat()  # so that B is launched before the first tick, which makes all later ones ready

    def late() -> bool:
        bench.first = READY
        return bench.queue.trouble is not None and bench.warm.ready

    run_until(bench, late, most=10_000)
    assert bench.loads == [A, B, A]


def test_a_process_that_must_be_killed_is_gone_before_its_job_is_told() -> None:
    """J7: whoever hears of the end may give the GPU to somebody else."""
    bench = serving_a(silent)
    job_id = bench.submit()
    gone: list[bool] = []
    usual = bench.queue.finish

    def finish(endings: Any, then: Any = None) -> Any:
        gone.append(bench.child.closed)
        return usual(endings, then)

    bench.queue.finish = finish  # type: ignore[method-assign]
    bench.each_tick = lambda: (bench.jobs.cancel(job_id), bench.beat())
    bench.work()
    assert (gone, bench.job(job_id).state) == ([True], JobStatus.CANCELLED)
