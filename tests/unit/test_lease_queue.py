"""Callers that wait for a lease: in their order, overtaken for a while only, and nothing is left behind."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from herdsman.leases.lease_queue import LeaseQueue, Outcome
from herdsman.leases.rules import Lease, LeaseRequest, LeaseSpec, Refusal, RefusalReason
from herdsman.states import LeaseStatus
from herdsman.testing.clocks import ManualClock

LONG = timedelta(seconds=30)
PATIENCE = 30
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Room:
    """So many MB on one GPU."""

    def __init__(self, free_mb: int) -> None:
        self.free_mb = free_mb
        self.given: list[str] = []
        self.back: list[str] = []
        self.tried: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def grant(self, asked: LeaseRequest, who: str, reserved: frozenset[str], *, last: bool) -> Outcome:
        self.tried.append(who)
        assert self.gate.wait(PATIENCE)
        if "g" in reserved or asked.spec.memory_mb > self.free_mb:
            return Refusal(reason=RefusalReason.LEASED, detail=f"{last}", could_hold=frozenset("g"))
        self.free_mb -= asked.spec.memory_mb
        self.given.append(who)
        return a_lease(who, asked)

    def release(self, lease: Lease) -> None:
        self.back.append(lease.token)


def a_lease(token: str, asked: LeaseRequest) -> Lease:
    return Lease(
        token=token,
        agent=asked.agent,
        status=LeaseStatus.ACTIVE,
        reason="granted",
        mode="gpu",
        node_id="n",
        gpu_uuid="g",
        gpu_index=0,
        memory_mb=asked.spec.memory_mb,
        exclusive=False,
        ttl=asked.ttl,
        seq=1,
        worker_id=None,
        created_at=NOW,
        expires_at=NOW,
        last_heartbeat=None,
        ended_at=None,
        overruled=None,
        metadata={},
    )


async def never() -> None:
    await asyncio.Event().wait()


def ask(
    line: LeaseQueue,
    name: str,
    memory_mb: int,
    wait: timedelta = LONG,
    gone: Callable[[], Awaitable[object]] = never,
) -> "asyncio.Task[Outcome]":
    wanted = LeaseRequest(agent="ann", spec=LeaseSpec(memory_mb=memory_mb), ttl=LONG)
    return asyncio.create_task(line.ask(wanted, name, wait, gone))


async def until(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not fact():  # noqa: ASYNC110  (what is waited for happens in a thread)
            await asyncio.sleep(0.005)


def scene(free_mb: int, play: Callable[[Room, LeaseQueue, ManualClock], Awaitable[Any]]) -> None:
    room, clock = Room(free_mb), ManualClock()
    line = LeaseQueue(room.grant, room.release, clock)

    async def act() -> None:
        try:
            await play(room, line, clock)
        finally:
            await asyncio.to_thread(line.stop)

    asyncio.run(act())


def test_what_is_free_is_given_at_once() -> None:
    async def play(room: Room, line: LeaseQueue, _clock: ManualClock) -> None:
        assert isinstance(await ask(line, "a", 10), Lease)
        assert line.waiting == 0 and room.given == ["a"]

    scene(10, play)


def test_who_waits_is_served_in_the_order_of_coming() -> None:
    async def play(room: Room, line: LeaseQueue, _clock: ManualClock) -> None:
        tasks: list[asyncio.Task[Outcome]] = []
        for place, name in enumerate("abc", start=1):
            tasks.append(ask(line, name, 5))
            await until(lambda place=place: line.waiting == place)
        room.free_mb = 10
        line.ring()
        await until(lambda: len(room.given) == 2)
        assert room.given == ["a", "b"]
        room.free_mb = 5
        line.ring()
        assert all(isinstance(each, Lease) for each in await asyncio.gather(*tasks))

    scene(0, play)


def test_a_large_one_is_overtaken_for_a_while_and_then_by_nobody() -> None:
    async def play(room: Room, line: LeaseQueue, clock: ManualClock) -> None:
        large = ask(line, "large", 20)
        await until(lambda: line.waiting == 1)
        assert isinstance(await ask(line, "small", 5), Lease), "there is room beside the large one"
        clock.advance(timedelta(seconds=11))
        late = ask(line, "late", 5)
        await until(lambda: line.waiting == 2)
        room.free_mb = 20
        line.ring()
        assert isinstance(await large, Lease)
        assert room.given == ["small", "large"]
        room.free_mb = 5
        line.ring()
        assert isinstance(await late, Lease)

    scene(10, play)


def test_a_wait_ends_with_the_last_refusal() -> None:
    async def play(_room: Room, line: LeaseQueue, _clock: ManualClock) -> None:
        got = await ask(line, "a", 5, timedelta(milliseconds=50))
        assert isinstance(got, Refusal) and line.waiting == 0

    scene(0, play)


def test_a_caller_that_is_gone_leaves_no_lease() -> None:
    async def play(room: Room, line: LeaseQueue, _clock: ManualClock) -> None:
        hung_up = asyncio.Event()
        waiting = ask(line, "a", 5, gone=hung_up.wait)
        await until(lambda: line.waiting == 1)
        before = len(room.tried)
        room.gate.clear()
        room.free_mb = 5
        line.ring()
        await until(lambda: len(room.tried) > before)
        hung_up.set()
        await asyncio.sleep(0)
        room.gate.set()
        await waiting
        await until(lambda: room.given == room.back == ["a"])

    scene(0, play)


def test_a_cancelled_caller_leaves_no_lease() -> None:
    async def play(room: Room, line: LeaseQueue, _clock: ManualClock) -> None:
        room.gate.clear()
        waiting = ask(line, "a", 5)
        await until(lambda: room.tried)
        waiting.cancel()
        await asyncio.sleep(0)
        room.gate.set()
        await until(lambda: room.back == ["a"])

    scene(5, play)


def test_those_who_ask_for_as_much_as_one_that_was_refused_are_not_tried() -> None:
    async def play(room: Room, line: LeaseQueue, _clock: ManualClock) -> None:
        tasks: list[asyncio.Task[Outcome]] = []
        for place in range(1, 6):
            tasks.append(ask(line, f"w{place}", 5, timedelta(seconds=5)))
            await until(lambda place=place: line.waiting == place)
        before = len(room.tried)
        line.ring()
        await until(lambda: len(room.tried) > before)
        assert room.tried[before:] == ["w1"]
        for task in tasks:
            task.cancel()

    scene(0, play)
