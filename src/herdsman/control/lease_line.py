"""Callers that wait for a lease, held by this process: first come, first served, and overtaken for a while only."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Condition, Event, Thread
from typing import Protocol

import structlog

from herdsman.control.commands.leases import grant_lease, release_lease
from herdsman.control.services import Services
from herdsman.core.errors import HerdsmanError, StoreUnavailable, TooMany
from herdsman.core.lease import Lease
from herdsman.core.lease_request import LeaseRequest, Waiting, as_hopeless, barred_by
from herdsman.core.leasing import Obstacle, Refusal, Wish
from herdsman.ports import Clock, SystemClock
from herdsman.wire.ids import new_lease_token

log = structlog.get_logger()

POLL = timedelta(seconds=1)
"""What changes elsewhere is seen at the latest after this."""
MOST_WAITING = 1000

Outcome = Lease | Refusal
Gone = Callable[[], Awaitable[object]]


class Grant(Protocol):
    def __call__(self, asked: LeaseRequest, who: str, barred: frozenset[str], *, last: bool) -> Outcome: ...


@dataclass(eq=False, slots=True)
class _Waiter:
    asked: LeaseRequest
    who: str
    since: float
    refusal: Refusal
    """What stood in the way last."""
    answer: Future[Outcome] = field(default_factory=Future[Outcome])
    tried: bool = False
    """A try is under way."""

    def seen(self) -> Waiting:
        could = self.refusal.could_hold
        return Waiting(wish=self.asked.wish, agent=self.asked.agent, since=self.since, could_hold=could)


class LeaseLine:
    """Safe to share between tasks. One thread serves all that wait; it ends with the line."""

    def __init__(
        self, grant: Grant, release: Callable[[Lease], None], clock: Clock, stopping: Event | None = None
    ) -> None:
        """`release` takes back what its caller was not there to receive."""
        self._grant = grant
        self._release = release
        self._clock = clock
        self._stopping = stopping or Event()
        self._news = Condition()
        self._rung = False
        self._waiting: list[_Waiter] = []
        self._thread: Thread | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ring(self) -> None:
        """Something may be free: called after every release and every report."""
        with self._news:
            self._rung = True
            self._news.notify()

    async def ask(self, asked: LeaseRequest, who: str, wait: timedelta, gone: Gone) -> Outcome:
        """A lease, or what stood in the way last. What a caller gets who is `gone` is given back."""
        began = self._now()
        patient = wait > timedelta(0)
        first = await self._try_now(asked, who, last=not patient)
        if not patient or isinstance(first, Lease) or first.reason.final:
            return await self._at_last(asked, who, first) if patient else first
        waiter = self._join(_Waiter(asked, who, began, first))
        answer, leaving = asyncio.wrap_future(waiter.answer), asyncio.ensure_future(gone())
        try:
            await asyncio.wait(
                {answer, leaving}, timeout=wait.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
            self._leave(waiter)
            outcome = await answer
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise
        finally:
            leaving.cancel()
        if leaving.done() and not leaving.cancelled():
            await asyncio.to_thread(self._take_back, outcome)
            return waiter.refusal
        return await self._at_last(asked, who, outcome)

    async def _try_now(self, asked: LeaseRequest, who: str, *, last: bool) -> Outcome:
        with self._news:
            barred = barred_by([each.seen() for each in self._waiting], self._now())
        trying = asyncio.ensure_future(asyncio.to_thread(self._grant, asked, who, barred, last=last))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            trying.add_done_callback(self._too_late)
            raise

    async def _at_last(self, asked: LeaseRequest, who: str, outcome: Outcome) -> Outcome:
        """Who has waited in vain and can do without a GPU is told so now."""
        if isinstance(outcome, Refusal) and asked.allow_cpu and not self._stopping.is_set():
            return await self._try_now(asked, who, last=True)
        return outcome

    def _join(self, waiter: _Waiter) -> _Waiter:
        waiter.answer.set_running_or_notify_cancel()
        with self._news:
            if len(self._waiting) >= MOST_WAITING:
                raise TooMany(
                    f"{MOST_WAITING} callers wait for a lease here already",
                    retry_after=POLL,
                    code="lease-line",
                )
            self._waiting.append(waiter)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="lease-line", daemon=True)
                self._thread.start()
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Its time is over. A try that is under way is waited for: it may bring a lease."""
        with self._news:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if not waiter.tried and not waiter.answer.done():
                waiter.answer.set_result(waiter.refusal)

    def _abandon(self, waiter: _Waiter) -> None:
        self._leave(waiter)
        waiter.answer.add_done_callback(self._too_late)

    def _too_late(self, done: "Future[Outcome] | asyncio.Future[Outcome]") -> None:
        if not done.cancelled() and done.exception() is None:
            Thread(target=self._take_back, args=(done.result(),), daemon=True).start()

    def _take_back(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Lease):
            return
        try:
            self._release(outcome)
        except HerdsmanError as error:  # it will run out
            log.warning("lease.not_given_back", lease=outcome.token[:8], reason=str(error))
        self.ring()

    def _run(self) -> None:
        while True:
            with self._news:
                if not self._waiting:
                    self._thread = None
                    return
                if not self._rung:
                    self._news.wait(POLL.total_seconds())
                self._rung = False
                line = [*self._waiting]
            if self._stopping.is_set():
                self._end_all(line)
            else:
                self._serve(line)

    def _serve(self, line: list[_Waiter]) -> None:
        """Each in its turn. Whoever asks for at least as much as one that was just refused is not tried."""
        refused: list[Wish] = []
        for place, waiter in enumerate(line):
            wish = waiter.asked.wish
            if any(as_hopeless(wish, each) for each in refused):
                continue
            outcome = self._try(waiter, line[:place])
            if isinstance(outcome, Refusal) and outcome.reason is not Obstacle.AGENT_LIMIT:
                refused.append(wish)

    def _try(self, waiter: _Waiter, before: list[_Waiter]) -> Outcome | None:
        with self._news:
            if waiter.answer.done() or waiter not in self._waiting:
                return None
            waiter.tried = True
            barred = barred_by([each.seen() for each in before if each in self._waiting], self._now())
        try:
            outcome = self._grant(waiter.asked, waiter.who, barred, last=False)
        except StoreUnavailable as error:  # it waits on: the database may come back
            log.warning("lease_line.postponed", reason=str(error))
            outcome = waiter.refusal
        except Exception as error:  # noqa: BLE001  (it belongs to who asked; the others still need this thread)
            self._answer(waiter, error)
            return None
        self._answer(waiter, outcome)
        return outcome

    def _answer(self, waiter: _Waiter, outcome: Outcome | Exception) -> None:
        with self._news:
            waiter.tried = False
            waits_on = isinstance(outcome, Refusal) and not outcome.reason.final and waiter in self._waiting
            if isinstance(outcome, Refusal):
                waiter.refusal = outcome
            if waits_on:
                return
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if isinstance(outcome, Exception):
                waiter.answer.set_exception(outcome)
            else:
                waiter.answer.set_result(outcome)

    def _end_all(self, line: list[_Waiter]) -> None:
        for waiter in line:
            self._leave(waiter)

    def _now(self) -> float:
        return self._clock.monotonic()


def open_lease_line(services: Services, stopping: Event, note: Callable[[Outcome], None]) -> LeaseLine:
    """`note` is told of every answer that a caller may get, for those who count."""

    def grant(asked: LeaseRequest, who: str, barred: frozenset[str], *, last: bool) -> Outcome:
        outcome = grant_lease(services, asked, new_token=new_lease_token, who=who, barred=barred, last=last)
        note(outcome)
        return outcome

    def release(lease: Lease) -> None:
        release_lease(services, lease.token, who="leader")

    return LeaseLine(grant, release, SystemClock(), stopping)
