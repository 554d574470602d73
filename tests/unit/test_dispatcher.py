"""Workers that wait are served together, each job goes to one of them, and nothing is lost with a connection."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from herdsman.errors import InvalidRequest, StoreUnavailable
from herdsman.ids import JobId, WorkerId
from herdsman.jobs import dispatch
from herdsman.jobs.dispatch import FIRST, Dispatcher
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import ClaimRequest
from herdsman.ports import SystemClock

LONG = timedelta(seconds=60)
NOW = timedelta(0)
PATIENCE = 30


class Queue:
    """Jobs in memory, given out as the database would; it counts how often it is asked."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.asked: list[int] = []
        self.given_back: list[str] = []
        self.idle: set[str] = set()
        self.error: Exception | None = None
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def claim(self, _services: Any, asks: Mapping[WorkerId, ClaimRequest]) -> Sequence[Claim]:
        self.asked.append(len(asks))
        takers = [worker for worker in asks if worker not in self.idle]
        found = [self._take(worker, asks[worker]) for worker in takers[: len(self.jobs)]]
        self.began.release()
        assert self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return found

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
    monkeypatch.setattr(dispatch, "release_job", made.release)
    return made


@pytest.fixture
def dispatcher(queue: Queue) -> Iterator[Dispatcher]:
    made = Dispatcher(None, SystemClock(), claim=queue.claim)  # type: ignore[arg-type]  # the queue needs none
    yield made
    queue.gate.set()
    made.stop()


async def never() -> None:
    await asyncio.Event().wait()


def ask(dispatcher: Dispatcher, name: str, wait: timedelta = LONG, **wanted: Any) -> "asyncio.Task[list[Claim]]":
    gone: Callable[[], Awaitable[object]] = wanted.pop("gone", never)
    return asyncio.create_task(dispatcher.wait(WorkerId(name), ClaimRequest(**wanted), wait, gone))


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():  # noqa: ASYNC110  (what is waited for happens in a thread)
            await asyncio.sleep(0.005)


async def waits(dispatcher: Dispatcher, count: int = 1) -> None:
    await until(lambda: dispatcher.waiting == count)


async def under_way(queue: Queue) -> None:
    """A round has begun, and ends when the gate opens."""
    assert await asyncio.to_thread(queue.began.acquire, timeout=PATIENCE)


def names(claims: Sequence[Claim]) -> list[str]:
    return [claim.key.job_id for claim in claims]


def test_a_job_that_is_there_is_given_at_once(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        queue.jobs = ["a"]
        assert names(await ask(dispatcher, "w1", NOW)) == ["a"]
        assert await ask(dispatcher, "w1", NOW) == []

    asyncio.run(scene())


def test_who_waits_gets_the_job_that_comes(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        waiting = ask(dispatcher, "w1")
        await until(lambda: queue.asked)
        queue.jobs = ["a"]
        dispatcher.ring()
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_a_job_of_which_nobody_tells_is_found_by_polling(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        waiting = ask(dispatcher, "w1")
        await until(lambda: queue.asked)
        queue.jobs = ["a"]
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_who_waited_in_vain_is_answered_with_nothing(dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        assert await ask(dispatcher, "w1", timedelta(milliseconds=20)) == []
        assert dispatcher.waiting == 0

    asyncio.run(scene())


def test_five_thousand_on_an_empty_queue_cost_a_few_transactions(
    queue: Queue, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one job wakes exactly one of them."""
    monkeypatch.setattr(dispatch, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        waiting = [ask(dispatcher, f"w{number}") for number in range(5_000)]
        await waits(dispatcher, 5_000)
        await until(lambda: queue.asked)
        for _ in range(100):
            await asyncio.sleep(0)
        before = len(queue.asked)
        assert before <= FIRST, queue.asked
        queue.jobs = ["a"]
        dispatcher.ring()
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        assert [names(each.result()) for each in done] == [["a"]]
        assert len(rest) == 4_999
        assert queue.asked[before:] == [FIRST]
        dispatcher.stop()
        assert not any(await asyncio.gather(*rest))

    asyncio.run(scene())


def test_many_jobs_are_given_in_few_transactions(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        waiting = [ask(dispatcher, f"w{number}") for number in range(1_000)]
        await waits(dispatcher, 1_000)
        await until(lambda: queue.asked)
        before = len(queue.asked)
        queue.jobs = [f"j{number}" for number in range(1_000)]
        dispatcher.ring()
        given = [names(claims) for claims in await asyncio.gather(*waiting)]
        assert sorted(given) == sorted([f"j{number}"] for number in range(1_000))
        assert len(queue.asked) - before <= 10

    asyncio.run(scene())


def test_workers_that_may_not_have_jobs_do_not_hide_them_from_others(
    queue: Queue, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        queue.idle = {f"idle{number}" for number in range(2 * FIRST)}
        waiting = [ask(dispatcher, name) for name in sorted(queue.idle)]
        await waits(dispatcher, len(waiting))
        good = ask(dispatcher, "good")
        await waits(dispatcher, len(waiting) + 1)
        queue.jobs = ["a"]
        dispatcher.ring()
        assert names(await asyncio.wait_for(good, PATIENCE)) == ["a"]
        dispatcher.stop()
        await asyncio.gather(*waiting)

    asyncio.run(scene())


def test_a_worker_that_may_not_have_jobs_delays_no_other(
    queue: Queue, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        queue.idle, queue.jobs = {"idle"}, ["a"]
        idle = ask(dispatcher, "idle")
        await until(lambda: queue.asked)
        assert names(await asyncio.wait_for(ask(dispatcher, "good"), PATIENCE)) == ["a"]
        dispatcher.stop()
        await idle

    asyncio.run(scene())


def test_a_newer_call_of_a_worker_ends_the_older(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        older = ask(dispatcher, "w1")
        await waits(dispatcher)
        newer = ask(dispatcher, "w1")
        assert await asyncio.wait_for(older, PATIENCE) == []
        queue.jobs = ["a"]
        dispatcher.ring()
        assert names(await asyncio.wait_for(newer, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_what_the_older_call_was_about_to_get_the_newer_one_gets(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["a"]
        older = ask(dispatcher, "w1")
        await under_way(queue)
        newer = ask(dispatcher, "w1")
        assert await asyncio.wait_for(older, PATIENCE) == []
        queue.gate.set()
        assert names(await asyncio.wait_for(newer, PATIENCE)) == ["a"]
        assert queue.given_back == []

    asyncio.run(scene())


def test_a_claim_for_a_connection_that_is_gone_is_given_back(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        hung_up = asyncio.Event()
        queue.gate.clear()
        queue.jobs = ["a"]
        waiting = ask(dispatcher, "w1", gone=hung_up.wait)
        await under_way(queue)
        hung_up.set()
        assert await asyncio.wait_for(waiting, PATIENCE) == []
        queue.gate.set()
        await until(lambda: queue.given_back == ["a"])

    asyncio.run(scene())


def test_a_claim_for_a_call_that_was_cancelled_is_given_back(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["a"]
        waiting = ask(dispatcher, "w1")
        await under_way(queue)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        queue.gate.set()
        await until(lambda: queue.given_back == ["a"])

    asyncio.run(scene())


def test_a_claim_that_arrives_together_with_the_hanging_up_is_given_back(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        async def gone() -> None:
            while dispatcher.waiting:  # it holds the event loop, so that the answer cannot be seen before this
                time.sleep(0.005)  # noqa: ASYNC251

        queue.jobs = ["a"]
        assert await ask(dispatcher, "w1", gone=gone) == []
        await until(lambda: queue.given_back == ["a"])

    asyncio.run(scene())


def test_a_ring_during_a_round_is_not_missed(
    queue: Queue, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        queue.gate.clear()
        waiting = ask(dispatcher, "w1")
        await under_way(queue)
        queue.jobs = ["a"]  # too late for the look that is under way
        dispatcher.ring()
        queue.gate.set()
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_a_round_that_outlasts_the_wait_is_waited_for(queue: Queue, dispatcher: Dispatcher) -> None:
    """Else its claim would be nobody's until it runs out."""

    async def scene() -> None:
        queue.gate.clear()
        queue.jobs = ["a"]
        waiting = ask(dispatcher, "w1", timedelta(milliseconds=10))
        await under_way(queue)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        queue.gate.set()
        assert names(await asyncio.wait_for(waiting, PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_who_resumes_is_looked_for_even_when_the_queue_is_empty(
    queue: Queue, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "POLL", timedelta(minutes=10))

    async def scene() -> None:
        other = ask(dispatcher, "w1")
        await until(lambda: queue.asked)
        queue.jobs = ["mine already"]
        assert names(await asyncio.wait_for(ask(dispatcher, "w2", resume=True), PATIENCE)) == ["mine already"]
        dispatcher.stop()
        await other

    asyncio.run(scene())


def test_a_database_that_is_away_is_said_to_those_who_asked_and_served_later(
    queue: Queue, dispatcher: Dispatcher
) -> None:
    async def scene() -> None:
        queue.error = StoreUnavailable("away")
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(ask(dispatcher, "w1"), PATIENCE)
        queue.error, queue.jobs = None, ["a"]
        assert names(await asyncio.wait_for(ask(dispatcher, "w1"), PATIENCE)) == ["a"]

    asyncio.run(scene())


def test_a_question_that_cannot_be_answered_troubles_nobody_else(queue: Queue, dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        with pytest.raises(InvalidRequest):
            await ask(dispatcher, "w1", types=("no such name!",))
        assert queue.asked == []

    asyncio.run(scene())


def test_stopping_answers_everybody_at_once(dispatcher: Dispatcher) -> None:
    async def scene() -> None:
        waiting = [ask(dispatcher, f"w{number}") for number in range(10)]
        await waits(dispatcher, 10)
        await asyncio.to_thread(dispatcher.stop)
        assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE) == [[]] * 10
        assert await ask(dispatcher, "late") == []

    asyncio.run(scene())


def test_the_others_are_told_of_what_happens_here_only(queue: Queue) -> None:
    told: list[str] = []
    made = Dispatcher(None, SystemClock(), claim=queue.claim, wake_others=lambda: told.append("x"))  # type: ignore[arg-type]
    made.ring()
    made.wake()
    assert told == ["x"]
