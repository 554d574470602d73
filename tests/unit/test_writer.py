"""What comes together is written together; each job goes to one worker, and nothing is lost with a connection."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from herdsman.errors import Conflict, InvalidRequest, StoreUnavailable, TooMany
from herdsman.ids import JobId, WorkerId
from herdsman.jobs import writer as writer_module
from herdsman.jobs.model import Claim, ClaimKey, NewJob, Submitted
from herdsman.jobs.protocol import ClaimRequest, Done, FinishResult
from herdsman.jobs.worker_commands import Report
from herdsman.jobs.writer import FIRST, Round, Writer, Written
from herdsman.ports import SystemClock
from herdsman.states import JobStatus

LONG = timedelta(seconds=60)
NOW = timedelta(0)
PATIENCE = 30


class Queue:
    """Jobs in memory, given out as the database would; it counts how often it is asked."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.rounds: list[Round] = []
        self.asked: list[int] = []
        self.given_back: list[str] = []
        self.idle: set[str] = set()
        self.error: Exception | None = None
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def write(self, _services: Any, wanted: Round) -> Written:
        self.rounds.append(wanted)
        asks = {**wanted.asks, **{each.worker_id: each.then for each in wanted.reports if each.then is not None}}
        if wanted.asks:
            self.asked.append(len(wanted.asks))
        self.jobs += [str(new.job_id) for new in wanted.news if new.job_id != "bad"]
        takers = [worker for worker in asks if worker not in self.idle]
        found = [self._take(worker, asks[worker]) for worker in takers[: len(self.jobs)]]
        self.began.release()
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        if any(new.job_id == "bad" for new in wanted.news):
            self.jobs = [name for name in self.jobs if name not in {new.job_id for new in wanted.news}]
            raise Conflict("bad was used before for another job body")
        return Written(
            submitted=[Submitted(JobId(str(new.job_id)), created=True) for new in wanted.news],
            told=[[FinishResult(key=each.key, status=JobStatus.DONE) for each in of.endings] for of in wanted.reports],
            claims=found,
        )

    def _take(self, worker: WorkerId, ask: ClaimRequest) -> Claim:
        name = self.jobs.pop(0)
        return Claim(
            key=ClaimKey(JobId(name), 1),
            worker_id=worker,
            type=ask.types[0] if ask.types else "demo",
            payload={},
            attempt=1,
            timeout=None,
            expires_at=datetime.now(UTC),
            service_job_id=None,
        )

    def release(self, _services: Any, key: ClaimKey, _why: str, **_named: Any) -> None:
        self.given_back.append(key.job_id)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue()
    monkeypatch.setattr(writer_module, "release_job", made.release)
    return made


@pytest.fixture
def writer(queue: Queue) -> Iterator[Writer]:
    made = Writer(None, SystemClock(), write=queue.write)  # type: ignore[arg-type]  # the queue needs none
    yield made
    queue.gate.set()
    made.stop()


async def never() -> None:
    await asyncio.Event().wait()


def ask(writer: Writer, name: str, wait: timedelta = LONG, **wanted: Any) -> "asyncio.Task[list[Claim]]":
    gone: Callable[[], Awaitable[object]] = wanted.pop("gone", never)
    return asyncio.create_task(writer.wait(WorkerId(name), ClaimRequest(**wanted), wait, gone))


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():  # noqa: ASYNC110  (what is waited for happens in a thread)
            await asyncio.sleep(0.005)


async def waits(writer: Writer, count: int = 1) -> None:
    await until(lambda: writer.waiting == count)


async def under_way(queue: Queue) -> None:
    """A round has begun, and ends when the gate opens."""
    assert await asyncio.to_thread(queue.began.acquire, timeout=PATIENCE)


def names(claims: Sequence[Claim]) -> list[str]:
    return [claim.key.job_id for claim in claims]


def test_a_job_that_is_there_is_given_at_once(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        queue.jobs = ["a"]
        assert names(await ask(writer, "w1", NOW)) == ["a"]
        assert await ask(writer, "w1", NOW) == []

    asyncio.run(scene())


def test_who_waits_gets_the_job_that_comes(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        waiting = ask(writer, "w1")
        await until(lambda: queue.asked)
        queue.jobs = ["a"]
        writer.ring()
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_a_job_of_which_nobody_tells_is_found_by_polling(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        waiting = ask(writer, "w1")
        await until(lambda: queue.asked)
        queue.jobs = ["a"]
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_who_waited_in_vain_is_answered_with_nothing(writer: Writer) -> None:
    async def scene() -> None:
        assert await ask(writer, "w1", timedelta(milliseconds=20)) == []
        assert writer.waiting == 0

    asyncio.run(scene())


def test_five_thousand_on_an_empty_queue_cost_a_few_transactions(
    queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one job wakes exactly one of them."""
    monkeypatch.setattr(writer_module, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        waiting = [ask(writer, f"w{number}") for number in range(5_000)]
        await waits(writer, 5_000)
        await until(lambda: queue.asked)
        for _ in range(100):
            await asyncio.sleep(0)
        before = len(queue.asked)
        assert before <= FIRST, queue.asked
        queue.jobs = ["a"]
        writer.ring()
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert [names(each.result()) for each in done] == [["a"]]
        assert len(rest) == 4_999
        assert queue.asked[before:] == [FIRST]
        writer.stop()
        assert not any(await asyncio.gather(*rest))

    asyncio.run(scene())


def test_many_jobs_are_given_in_few_transactions(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        waiting = [ask(writer, f"w{number}") for number in range(1_000)]
        await waits(writer, 1_000)
        await until(lambda: queue.asked)
        before = len(queue.asked)
        queue.jobs = [f"j{number}" for number in range(1_000)]
        writer.ring()
        given = [names(claims) for claims in await asyncio.gather(*waiting)]
        assert sorted(given) == sorted([f"j{number}"] for number in range(1_000))
        assert len(queue.asked) - before <= 10

    asyncio.run(scene())


def test_workers_that_may_not_have_jobs_do_not_hide_them_from_others(
    queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        queue.idle = {f"idle{number}" for number in range(2 * FIRST)}
        waiting = [ask(writer, name) for name in sorted(queue.idle)]
        await waits(writer, len(waiting))
        good = ask(writer, "good")
        await waits(writer, len(waiting) + 1)
        queue.jobs = ["a"]
        writer.ring()
        assert names(await asyncio.wait_for(good, PATIENCE)) == ["a"]
        writer.stop()
        await asyncio.gather(*waiting)

    asyncio.run(scene())


def test_a_worker_that_may_not_have_jobs_delays_no_other(
    queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        queue.idle, queue.jobs = {"idle"}, ["a"]
        idle = ask(writer, "idle")
        await until(lambda: queue.asked)
        assert names(await asyncio.wait_for(ask(writer, "good"), PATIENCE)) == ["a"]
        writer.stop()
        await idle

    asyncio.run(scene())


def test_a_newer_call_of_a_worker_ends_the_older(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        older = ask(writer, "w1")
        await waits(writer)
        newer = ask(writer, "w1")
        assert await asyncio.wait_for(older, PATIENCE) == []
        queue.jobs = ["a"]
        writer.ring()
        assert names(await asyncio.wait_for(newer, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_what_the_older_call_was_about_to_get_the_newer_one_gets(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["a"]
        older = ask(writer, "w1")
        await under_way(queue)
        newer = ask(writer, "w1")
        assert await asyncio.wait_for(older, PATIENCE) == []
        queue.gate.set()
        assert names(await asyncio.wait_for(newer, PATIENCE)) == ["a"]
        assert queue.given_back == []

    asyncio.run(scene())


def test_a_claim_for_a_connection_that_is_gone_is_given_back(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        hung_up = asyncio.Event()
        queue.gate.clear()
        queue.jobs = ["a"]
        waiting = ask(writer, "w1", gone=hung_up.wait)
        await under_way(queue)
        hung_up.set()
        assert await asyncio.wait_for(waiting, PATIENCE) == []
        queue.gate.set()
        await until(lambda: queue.given_back == ["a"])

    asyncio.run(scene())


def test_a_claim_for_a_call_that_was_cancelled_is_given_back(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["a"]
        waiting = ask(writer, "w1")
        await under_way(queue)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        queue.gate.set()
        await until(lambda: queue.given_back == ["a"])

    asyncio.run(scene())


def test_a_claim_that_arrives_together_with_the_hanging_up_is_given_back(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        async def gone() -> None:
            while writer.waiting:  # it holds the event loop, so that the answer cannot be seen before this
                time.sleep(0.005)  # noqa: ASYNC251

        queue.jobs = ["a"]
        assert await ask(writer, "w1", gone=gone) == []
        await until(lambda: queue.given_back == ["a"])

    asyncio.run(scene())


def test_a_ring_during_a_round_is_not_missed(queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        queue.gate.clear()
        waiting = ask(writer, "w1")
        await under_way(queue)
        queue.jobs = ["a"]  # too late for the look that is under way
        writer.ring()
        queue.gate.set()
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_a_round_that_outlasts_the_wait_is_waited_for(queue: Queue, writer: Writer) -> None:
    """Else its claim would be nobody's until it runs out."""

    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["a"]
        waiting = ask(writer, "w1", timedelta(milliseconds=10))
        await under_way(queue)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        queue.gate.set()
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_who_resumes_is_looked_for_even_when_the_queue_is_empty(
    queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        other = ask(writer, "w1")
        await until(lambda: queue.asked)
        queue.jobs = ["mine already"]
        assert names(await asyncio.wait_for(ask(writer, "w2", resume=True), PATIENCE)) == ["mine already"]
        writer.stop()
        await other

    asyncio.run(scene())


def test_a_database_that_is_away_is_said_to_those_who_asked_and_served_later(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        queue.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(ask(writer, "w1"), PATIENCE)
        queue.error, queue.jobs = None, ["a"]
        assert names(await asyncio.wait_for(ask(writer, "w1"), PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_a_question_that_cannot_be_answered_troubles_nobody_else(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        with pytest.raises(InvalidRequest):
            await ask(writer, "w1", types=("no such name!",))
        assert queue.asked == []

    asyncio.run(scene())


def test_stopping_answers_everybody_at_once(writer: Writer) -> None:
    async def scene() -> None:
        waiting = [ask(writer, f"w{number}") for number in range(10)]
        await waits(writer, 10)
        await asyncio.to_thread(writer.stop)
        assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE) == [[]] * 10
        assert await ask(writer, "late") == []

    asyncio.run(scene())


def test_the_others_are_told_of_what_happens_here_only(queue: Queue) -> None:
    told: list[str] = []
    made = Writer(None, SystemClock(), write=queue.write, wake_others=lambda: told.append("x"))  # type: ignore[arg-type]
    made.ring()
    made.wake()
    assert told == ["x"]


def submit(writer: Writer, name: str) -> "asyncio.Task[Submitted]":
    return asyncio.create_task(writer.submit(NewJob(type="demo", job_id=JobId(name))))


def finish(writer: Writer, worker: str, job: str, then: ClaimRequest | None = None) -> "asyncio.Task[Any]":
    return asyncio.create_task(writer.finish(Report(WorkerId(worker), [Done(ClaimKey(JobId(job), 1), None)], then)))


async def held_up(queue: Queue, writer: Writer) -> "asyncio.Task[Submitted]":
    """A first submission that is under way until the gate opens."""
    queue.gate.clear()
    first = submit(writer, "first")
    await under_way(queue)
    return first


def test_a_lone_submission_waits_for_nobody(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        assert await submit(writer, "a") == Submitted(JobId("a"), created=True)

    asyncio.run(scene())
    assert [len(each.news) for each in queue.rounds] == [1]


def test_what_comes_while_a_round_is_under_way_is_written_together(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        first = await held_up(queue, writer)
        news = [submit(writer, f"j{number}") for number in range(49)]
        ends = [finish(writer, f"w{number}", "held") for number in range(3)]
        asking = ask(writer, "idle")
        await until(lambda: writer.calls == 52 and writer.waiting == 1)
        queue.gate.set()
        await first
        assert [each.job_id for each in await asyncio.gather(*news)] == [f"j{number}" for number in range(49)]
        assert [done.told[0].status for done in await asyncio.gather(*ends)] == [JobStatus.DONE] * 3
        assert names(await asking) == ["first"]

    asyncio.run(scene())
    assert [(len(each.news), len(each.reports), len(each.asks)) for each in queue.rounds] == [(1, 0, 0), (49, 3, 1)]


def test_a_job_that_comes_while_a_worker_waits_is_stored_and_given_in_one_round(
    queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        waiting = ask(writer, "w1", types=("demo",))
        other = ask(writer, "w2", types=("another",))
        await until(lambda: sum(queue.asked) >= 2)
        before = len(queue.rounds)
        await submit(writer, "a")
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]
        assert [([new.job_id for new in each.news], [*each.asks]) for each in queue.rounds[before:]] == [
            (["a"], ["w1"])
        ]
        writer.stop()
        await other

    asyncio.run(scene())


def test_an_end_and_the_next_job_are_one_round(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        queue.jobs = ["next"]
        done = await finish(writer, "w1", "mine", ClaimRequest())
        assert [each.status for each in done.told] == [JobStatus.DONE]
        assert names(done.claims) == ["next"]

    asyncio.run(scene())
    assert len(queue.rounds) == 1


def test_a_worker_asks_once_in_a_round(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        first = await held_up(queue, writer)
        ends = [finish(writer, "w1", f"j{number}", ClaimRequest()) for number in range(2)]
        asking = ask(writer, "w1", NOW)
        await until(lambda: writer.calls == 2 and writer.waiting == 1)
        queue.gate.set()
        await asyncio.gather(first, asking, *ends)

    asyncio.run(scene())
    asked = [[*each.asks, *(of.worker_id for of in each.reports)] for each in queue.rounds]
    assert asked == [[], ["w1"], ["w1"], ["w1"]]


def test_a_round_has_a_limit(queue: Queue, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MOST", 10)

    async def scene() -> None:
        first = await held_up(queue, writer)
        rest = [submit(writer, f"j{number}") for number in range(25)]
        await until(lambda: writer.calls == 25)
        queue.gate.set()
        await asyncio.gather(first, *rest)

    asyncio.run(scene())
    assert [len(each.news) for each in queue.rounds] == [1, 10, 10, 5]


def test_an_error_goes_to_the_call_that_it_belongs_to(queue: Queue, writer: Writer) -> None:
    """And what was in its round is written all the same."""

    async def scene() -> None:
        first = await held_up(queue, writer)
        rest = [submit(writer, name) for name in ("a", "b", "bad", "c")]
        end = finish(writer, "w1", "mine")
        await until(lambda: writer.calls == 5)
        queue.gate.set()
        a, b, bad, c = await asyncio.gather(*rest, return_exceptions=True)
        assert isinstance(bad, Conflict)
        assert [each.job_id for each in (a, b, c) if isinstance(each, Submitted)] == ["a", "b", "c"]
        assert (await end).told[0].status is JobStatus.DONE
        await first

    asyncio.run(scene())


def test_while_the_database_is_away_nobody_is_tried_alone(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        first = await held_up(queue, writer)
        rest = [submit(writer, f"j{number}") for number in range(9)]
        await until(lambda: writer.calls == 9)
        queue.error = StoreUnavailable("away")
        queue.gate.set()
        answers = await asyncio.gather(first, *rest, return_exceptions=True)
        assert all(isinstance(each, StoreUnavailable) for each in answers)

    asyncio.run(scene())
    assert len(queue.rounds) == 2


def test_too_many_that_wait_are_told_to_come_again_before_anything_is_done(queue: Queue) -> None:
    """J10."""
    writer = Writer(None, SystemClock(), write=queue.write, room=5)  # type: ignore[arg-type]  # the queue needs none

    async def scene() -> None:
        first = await held_up(queue, writer)
        waiting = [submit(writer, f"j{number}") for number in range(5)]
        await until(lambda: writer.calls == 5)
        with pytest.raises(TooMany) as refused:
            await submit(writer, "one too many")
        assert refused.value.retry_after is not None
        queue.gate.set()
        await asyncio.gather(first, *waiting)

    asyncio.run(scene())
    writer.stop()
    assert [len(each.news) for each in queue.rounds] == [1, 5]


def test_a_call_that_was_given_up_is_left_out(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        first = await held_up(queue, writer)
        leaves, stays = submit(writer, "leaves"), submit(writer, "stays")
        await until(lambda: writer.calls == 2)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        queue.gate.set()
        await asyncio.gather(first, stays)

    asyncio.run(scene())
    assert [[new.job_id for new in each.news] for each in queue.rounds] == [["first"], ["stays"]]


def test_jobs_that_come_with_an_end_whose_caller_was_cancelled_are_given_back(queue: Queue, writer: Writer) -> None:
    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["next"]
        end = finish(writer, "w1", "mine", ClaimRequest())
        await under_way(queue)
        end.cancel()
        await asyncio.gather(end, return_exceptions=True)
        queue.gate.set()
        await until(lambda: queue.given_back == ["next"])

    asyncio.run(scene())


def test_what_is_sent_after_the_stop_is_still_written(writer: Writer) -> None:
    async def scene() -> None:
        await submit(writer, "a")
        await asyncio.to_thread(writer.stop)
        assert (await submit(writer, "b")).created
        assert (await finish(writer, "w1", "mine")).told[0].status is JobStatus.DONE

    asyncio.run(scene())
