"""A part of a GPU for a block of code: asked for, kept by heartbeats, watched, and given back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from herdsman.client import calls
from herdsman.client.transport import Transport, run
from herdsman.errors import Gone, HerdsmanError, NotFound

if TYPE_CHECKING:
    from asyncio import Task

    from herdsman.leases.wire import LeaseAnswer, LeaseIn

LONGEST_ASK = timedelta(seconds=60)
BEATS = 3
"""So many heartbeats within the life of a lease."""
LONGEST_NAP = 60.0
GOODBYE = timedelta(seconds=5)
"""So long it is tried to give a lease back; then it runs out by itself."""


class LeaseDenied(HerdsmanError):
    """No GPU could be leased; `reason` is a stable code, and after `retry_after` it may be worth asking again."""

    def __init__(self, reason: str, detail: str, retry_after: timedelta | None) -> None:
        super().__init__(f"no lease was given ({reason}): {detail}")
        self.reason = reason
        self.detail = detail
        self.retry_after = retry_after


class LeaseLost(HerdsmanError):
    """The GPU may be another's by now: stop using it at once."""


class Lost:
    """Set once the lease may not be used any more; like `threading.Event`, but it also knows the time."""

    def __init__(self, now: Callable[[], float], deadline: float) -> None:
        self._now = now
        self._changed = threading.Condition()
        self._deadline = deadline
        self._reason: str | None = None

    def is_set(self) -> bool:
        return self.reason is not None

    @property
    def reason(self) -> str | None:
        with self._changed:
            if self._reason is None and self._now() >= self._deadline:
                self._reason = "no heartbeat was taken in time"
            return self._reason

    @property
    def left(self) -> float:
        """Seconds until it is set if no heartbeat is taken any more."""
        with self._changed:
            return max(0.0, self._deadline - self._now())

    @property
    def deadline(self) -> float:
        return self._deadline

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or for so many seconds; whether it is."""
        until = None if timeout is None else self._now() + timeout
        with self._changed:
            while not self.is_set():
                left = [self.left] + ([] if until is None else [until - self._now()])
                if min(left) <= 0 and not self.is_set():
                    return False
                self._changed.wait(min(LONGEST_NAP, max(0.0, min(left))))
        return True

    def move(self, deadline: float) -> None:
        """A heartbeat was taken. What is lost stays lost, though the server has not noticed."""
        with self._changed:
            if not self.is_set():
                self._deadline = deadline
                self._changed.notify_all()

    def set(self, reason: str) -> None:
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()


class Held:
    """What the holder of a lease may ask, whichever kind of program it is."""

    def __init__(self, transport: Transport, body: LeaseIn, wait: timedelta) -> None:
        self._transport = transport
        self._body = body
        """Always with the same token, so that a lost answer costs nothing."""
        self._patience = wait
        self._answer: LeaseAnswer | None = None
        self.lost = Lost(transport.now, float("inf"))
        """Set at the end of the lease less its margin, or as soon as the server says that it is over."""
        self._expires: datetime | None = None

    @property
    def answer(self) -> LeaseAnswer:
        if self._answer is None:
            raise LeaseLost("there is no lease yet: it is asked for when its block is entered")
        return self._answer

    @property
    def token(self) -> str:
        return self.answer.token or ""

    @property
    def seq(self) -> int:
        """Rises with each lease of a GPU: pass it on to whatever must not listen to an older holder."""
        return self.answer.lease_seq or 0

    @property
    def mode(self) -> str:
        return self.answer.mode or "gpu"

    @property
    def node_id(self) -> str | None:
        return self.answer.node_id

    @property
    def gpu_index(self) -> int | None:
        return self.answer.gpu_index

    @property
    def gpu_uuid(self) -> str | None:
        return self.answer.gpu_uuid

    @property
    def expires(self) -> datetime | None:
        """By the server's clock, as it said last."""
        return self._expires

    def check(self) -> None:
        """Raises `LeaseLost` once the GPU may be another's: call it before every piece of work."""
        reason = self.lost.reason
        if reason is not None:
            raise LeaseLost(f"the lease of {self.answer.memory_mb} MB is lost: {reason}; stop using the GPU")

    async def take(self) -> None:
        """Ask until it is given, or raise `LeaseDenied` after all of the wait."""
        until = self._transport.now() + self._patience.total_seconds()
        while True:
            sent = self._transport.now()
            wait = min(max(0.0, until - sent), LONGEST_ASK.total_seconds())
            body = self._body.model_copy(update={"wait_seconds": wait})
            answer = await self._transport.send(calls.lease(body))
            if answer.granted:
                break
            retry = timedelta(seconds=answer.retry_after_seconds or 0)
            if self._transport.now() >= until or answer.reason == "too_large":
                raise LeaseDenied(answer.reason or "unknown", answer.detail or "", retry or None)
        self._answer, self._expires = answer, answer.expires_at
        self.lost = Lost(self._transport.now, sent + self._lasting(answer.margin_seconds))
        if self._patience:  # the answer was held back, so it says little about how much is left
            self.lost = Lost(self._transport.now, float("inf"))
            try:
                await self.beat()
            except HerdsmanError:
                await self.give_back()
                raise
            self.check()

    async def beat(self) -> None:
        """One heartbeat. Its own sending is when the new time begins, not the answer (L2)."""
        sent, deadline = self._transport.now(), self.lost.deadline
        until = None if deadline == float("inf") else deadline
        try:
            kept = await self._transport.send(calls.keep_lease(self.token), until=until)
        except (Gone, NotFound) as error:
            self.lost.set(str(error))
            return
        self._expires = kept.expires_at
        self.lost.move(sent + self._lasting(kept.margin_seconds))

    async def give_back(self) -> None:
        """Best effort: a lease that is not given back runs out."""
        if self._answer is None:
            return
        try:
            until = self._transport.now() + GOODBYE.total_seconds()
            await self._transport.send(calls.release_lease(self.token), until=until)
        except HerdsmanError:
            return

    def pause(self) -> float:
        """Seconds to the next heartbeat."""
        return max(0.05, (self.answer.ttl_seconds or 60.0) / BEATS)

    def _lasting(self, margin: float | None) -> float:
        return max(0.0, (self.answer.ttl_seconds or 0.0) - (margin or 0.0))


class Lease(Held):
    """Use it with `with`; heartbeats are sent by a thread of its own until the block is left."""

    def __init__(self, transport: Transport, body: LeaseIn, wait: timedelta) -> None:
        super().__init__(transport, body, wait)
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        run(self.take())
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        run(self.give_back())

    def _keep(self) -> None:
        pause = self.pause()
        while not self._done.wait(pause) and not self.lost.is_set():
            try:
                run(self.beat())
                pause = self.pause()
            except HerdsmanError:  # it is tried again as long as there is time
                pause = self.pause() / BEATS


class AsyncLease(Held):
    """Use it with `async with`; heartbeats are sent by a task of its own.

    Code that blocks the event loop keeps them back: `check` and `lost` tell the truth all the same.
    """

    def __init__(self, transport: Transport, body: LeaseIn, wait: timedelta) -> None:
        super().__init__(transport, body, wait)
        self._task: Task[None] | None = None

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415  (a program that blocks does not need it)

        await self.take()
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        await self.give_back()

    async def _keep(self) -> None:
        import asyncio  # noqa: PLC0415

        pause = self.pause()
        while not self.lost.is_set():
            await asyncio.sleep(pause)
            try:
                await self.beat()
                pause = self.pause()
            except HerdsmanError:
                pause = self.pause() / BEATS
