"""Callers that wait for a lease, held by this process: first come, first served, and overtaken for a while only."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog

from herdsman.concurrency import Gone, Waiter, WaitQueue
from herdsman.context import Services
from herdsman.errors import HerdsmanError, StoreUnavailable, TooMany
from herdsman.leases.commands import grant_lease, release_lease
from herdsman.leases.rules import Lease, LeaseRequest, LeaseSpec, Refusal, RefusalReason, reserved_by
from herdsman.ports import Clock, SystemClock
from herdsman.wire import new_lease_token

log = structlog.get_logger()
POLL = timedelta(seconds=1)
"""What changes elsewhere is seen at the latest after this."""
MOST_WAITING = 1000
Outcome = Lease | Refusal


class Grant(Protocol):
    def __call__(self, asked: LeaseRequest, who: str, reserved: frozenset[str], *, last: bool) -> Outcome: ...


@dataclass(eq=False, slots=True)
class _Waiter(Waiter[Outcome]):
    asked: LeaseRequest
    who: str
    since: float
    refusal: Refusal
    """The last one."""


class LeaseQueue(WaitQueue[_Waiter, Outcome]):
    def __init__(self, grant: Grant, release: Callable[[Lease], None], clock: Clock) -> None:
        """`release` takes back what its caller was not there to receive."""
        super().__init__("lease-queue")
        self._grant = grant
        self._release = release
        self._clock = clock
        self._served_rung = 0
        self._waiting: list[_Waiter] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ring(self) -> None:
        """Something may be free: called after every release and every report."""
        self.wake()

    async def ask(self, asked: LeaseRequest, who: str, wait: timedelta, gone: Gone) -> Outcome:
        """A lease, or what stood in the way last. What a caller gets who is `gone` is given back."""
        began, patient = self._clock.monotonic(), wait > timedelta(0)
        outcome = await self._try_now(asked, who, last=not patient)
        if not patient:
            return outcome
        if isinstance(outcome, Refusal) and not outcome.reason.final:
            outcome = await self._wait(_Waiter(asked, who, began, outcome), wait, gone)
        if isinstance(outcome, Refusal) and asked.allow_cpu and not self._stopped:
            # It has waited in vain and can do without a GPU.
            return await self._try_now(asked, who, last=True)
        return outcome

    def _reserved_by(self, waiters: Iterable[_Waiter]) -> frozenset[str]:
        return reserved_by([(each.since, each.refusal) for each in waiters], self._clock.monotonic())

    async def _try_now(self, asked: LeaseRequest, who: str, *, last: bool) -> Outcome:
        with self._news:
            reserved = self._reserved_by(self._waiting)
        trying = asyncio.ensure_future(asyncio.to_thread(self._grant, asked, who, reserved, last=last))
        try:
            return await asyncio.shield(trying)
        except asyncio.CancelledError:
            trying.add_done_callback(self._too_late)
            raise

    def _too_late(self, done: "Future[Outcome] | asyncio.Future[Outcome]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._give_back(done.result())

    def _waiters(self) -> Iterable[_Waiter]:
        return self._waiting

    def _nothing(self, waiter: _Waiter) -> Outcome:
        return waiter.refusal

    def _add(self, waiter: _Waiter) -> None:
        if len(self._waiting) >= MOST_WAITING:
            raise TooMany(f"{MOST_WAITING} callers wait for a lease here already", retry_after=POLL, code="lease-line")
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._news.notify()  # the thread polls from here on

    def _remove(self, waiter: _Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def _next(self, *, timed_out: bool) -> Sequence[_Waiter]:
        if self._stopped or not self._waiting or not (timed_out or self._served_rung != self._rung):
            return []
        self._served_rung = self._rung
        return [*self._waiting]

    def _pause(self) -> float | None:
        return POLL.total_seconds() if self._waiting else None

    def _serve(self, batch: Sequence[_Waiter]) -> None:
        """Each in its turn. Whoever asks for at least as much as one that was just refused is not tried."""
        refused: list[LeaseSpec] = []
        for place, waiter in enumerate(batch):
            spec = waiter.asked.spec
            if any(spec.as_hard_as(each) for each in refused):
                continue
            outcome = self._try(waiter, batch[:place])
            if isinstance(outcome, Refusal) and outcome.reason is not RefusalReason.AGENT_LIMIT:
                refused.append(spec)

    def _try(self, waiter: _Waiter, before: Sequence[_Waiter]) -> Outcome | None:
        with self._news:
            if self._stopped or waiter.done:
                return None
            waiter.serving = True
            reserved = self._reserved_by(each for each in before if each in self._waiting)
        error: Exception | None = None
        outcome: Outcome = waiter.refusal
        try:
            outcome = self._grant(waiter.asked, waiter.who, reserved, last=False)
        except StoreUnavailable as away:  # it waits on: the database may come back
            log.warning("lease_queue.postponed", reason=str(away))
        except Exception as fault:  # noqa: BLE001  (it belongs to who asked; the others still need this thread)
            error = fault
        with self._news:
            waiter.serving = False
            if waiter.done:
                self._returned.append(outcome)  # its caller hung up meanwhile
            elif error is not None:
                self._finish(waiter, error)
            elif isinstance(outcome, Lease) or outcome.reason.final or waiter.last:
                self._finish(waiter, outcome)
            else:
                waiter.refusal = outcome
        return outcome if error is None else None

    def _take_back(self, result: Outcome) -> None:
        if not isinstance(result, Lease):
            return
        try:
            self._release(result)
        except HerdsmanError as error:  # it will run out
            log.warning("lease.not_given_back", lease=result.token[:8], reason=str(error))
        self.ring()


def open_lease_queue(services: Services, note: Callable[[Outcome], None]) -> LeaseQueue:
    """`note` is called with every answer that a caller may get, for metrics."""

    def grant(asked: LeaseRequest, who: str, reserved: frozenset[str], *, last: bool) -> Outcome:
        outcome = grant_lease(services, asked, new_token=new_lease_token, who=who, reserved=reserved, last=last)
        note(outcome)
        return outcome

    def release(lease: Lease) -> None:
        release_lease(services, lease.token, who="leader")

    return LeaseQueue(grant, release, SystemClock())
