"""Calls that come together are done together, and each is answered for itself."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from herdsman.concurrency import Batcher
from herdsman.errors import InvalidRequest, TooMany


class Work:
    """Doubles numbers, and remembers which of them came together. It can be held up."""

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.began = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, items: Sequence[int]) -> list[int | Exception]:
        self.rounds.append([*items])
        self.began.release()
        assert self.gate.wait(30)
        return [InvalidRequest(f"{item} is odd") if item % 2 else 2 * item for item in items]


Scene = Callable[[Work, Batcher[int, int]], Coroutine[Any, Any, None]]


async def held_up(work: Work, batcher: Batcher[int, int]) -> "asyncio.Task[int]":
    """A first call that is under way until the gate opens."""
    work.gate.clear()
    first = asyncio.create_task(batcher.call(0))
    assert await asyncio.to_thread(work.began.acquire, timeout=30)
    return first


def run(test: Scene, *, most: int = 200, room: int = 10_000) -> Work:
    work = Work()
    batcher = Batcher[int, int](work, most=most, room=room)
    try:
        asyncio.run(test(work, batcher))
    finally:
        work.gate.set()
        batcher.stop()
    return work


def test_a_lone_call_waits_for_nobody() -> None:
    async def alone(_work: Work, batcher: Batcher[int, int]) -> None:
        assert await batcher.call(2) == 4

    assert run(alone).rounds == [[2]]


def test_what_comes_while_a_round_runs_is_the_next_round() -> None:
    async def many(work: Work, batcher: Batcher[int, int]) -> None:
        first = await held_up(work, batcher)
        rest = [asyncio.create_task(batcher.call(2 * number)) for number in range(1, 50)]
        await asyncio.sleep(0)
        work.gate.set()
        assert await first == 0
        assert await asyncio.gather(*rest) == [4 * number for number in range(1, 50)]

    assert [len(each) for each in run(many).rounds] == [1, 49]


def test_a_round_has_a_limit() -> None:
    async def many(work: Work, batcher: Batcher[int, int]) -> None:
        first = await held_up(work, batcher)
        rest = [asyncio.create_task(batcher.call(2)) for _ in range(25)]
        await asyncio.sleep(0)
        work.gate.set()
        await asyncio.gather(first, *rest)

    assert [len(each) for each in run(many, most=10).rounds] == [1, 10, 10, 5]


def test_an_error_goes_to_the_call_that_it_belongs_to() -> None:
    async def mixed(work: Work, batcher: Batcher[int, int]) -> None:
        first = await held_up(work, batcher)
        rest = [asyncio.create_task(batcher.call(number)) for number in (2, 3, 4)]
        await asyncio.sleep(0)
        work.gate.set()
        good, bad, other = await asyncio.gather(*rest, return_exceptions=True)
        await first
        assert (good, other) == (4, 8)
        assert isinstance(bad, InvalidRequest)

    run(mixed)


def test_work_that_breaks_breaks_all_calls_of_its_round_and_no_later_one() -> None:
    calls: list[int] = []

    def broken(items: Sequence[int]) -> list[int | Exception]:
        calls.append(len(items))
        if len(calls) == 1:
            raise ZeroDivisionError
        return [*items]

    async def both() -> None:
        with pytest.raises(ZeroDivisionError):
            await batcher.call(1)
        assert await batcher.call(2) == 2

    batcher = Batcher[int, int](broken)
    asyncio.run(both())
    batcher.stop()


def test_too_many_that_wait_are_told_to_come_again_before_anything_is_done() -> None:
    """J10."""

    async def flood(work: Work, batcher: Batcher[int, int]) -> None:
        first = await held_up(work, batcher)
        waiting = [asyncio.create_task(batcher.call(2)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(TooMany) as refused:
            await batcher.call(6)
        assert refused.value.retry_after is not None
        work.gate.set()
        await asyncio.gather(first, *waiting)

    assert run(flood, room=5).rounds == [[0], [2, 2, 2, 2, 2]]


def test_a_call_that_was_given_up_is_left_out() -> None:
    async def one_leaves(work: Work, batcher: Batcher[int, int]) -> None:
        first = await held_up(work, batcher)
        leaves, stays = (asyncio.create_task(batcher.call(number)) for number in (2, 4))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        work.gate.set()
        await asyncio.gather(first, stays)

    assert run(one_leaves).rounds == [[0], [4]]
