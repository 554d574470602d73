"""Workers that wait for a job, held by this process and served together: one transaction for all that ask."""

import asyncio
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Condition, Thread

import structlog

from herdsman.control.commands import claim_for, release_job
from herdsman.control.commands.claim import check_ask
from herdsman.control.services import Services
from herdsman.core.errors import HerdsmanError
from herdsman.core.model import Claim, PoolId, WorkerId
from herdsman.core.work import Ask
from herdsman.ports import Clock

log = structlog.get_logger()

FIRST = 32
"""How many are asked for at first: one job that came needs one worker, not all that wait."""
MOST = 200
POLL = timedelta(seconds=1)
"""How long a queue that was seen empty is taken to be so, unless somebody rings."""

Key = tuple[PoolId | None, tuple[str, ...], tuple[str, ...]]
Gone = Callable[[], Awaitable[object]]


@dataclass(eq=False, slots=True)
class _Waiter:
    worker_id: WorkerId
    ask: Ask
    key: Key
    once: bool
    """It does not wait: it is answered after one look, whatever is there."""
    answer: Future[list[Claim]] = field(default_factory=Future[list[Claim]])
    asked: bool = False
    """A round is under way for it."""

    def takes(self, claims: Sequence[Claim]) -> bool:
        return not self.ask.types or all(claim.type in self.ask.types for claim in claims)


@dataclass(eq=False, slots=True)
class _Line:
    """Those who would take the same jobs, the one that was asked for longest ago first."""

    waiting: OrderedDict[WorkerId, _Waiter] = field(default_factory=OrderedDict[WorkerId, _Waiter])
    size: int = FIRST
    empty_until: float = 0.0
    in_vain: int = 0
    """How many were asked for in vain since there was news. A few prove nothing: they may not be allowed any job."""

    def known_empty(self, now: float) -> bool:
        return self.empty_until > now and self.in_vain >= FIRST


class Dispatcher:
    """Its own thread asks the database. It is woken by `ring`, by who comes, and every `poll`."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        *,
        poll: timedelta = POLL,
        tell_others: Callable[[], None] = lambda: None,
        claim: Callable[[Services, Mapping[WorkerId, Ask]], Sequence[Claim]] = claim_for,
    ) -> None:
        """`tell_others` rings at the other replicas, where there is a way to."""
        self._services = services
        self._clock = clock
        self._claim = claim
        self._poll_s = poll.total_seconds()
        self._news = Condition()
        self._waiting: dict[WorkerId, _Waiter] = {}
        self._lines: OrderedDict[Key, _Line] = OrderedDict()
        self._at_once: OrderedDict[WorkerId, _Waiter] = OrderedDict()
        self._returned: deque[tuple[WorkerId, list[Claim]]] = deque()
        self._rung = 0
        self._thread: Thread | None = None
        self._stopped = False
        self.tell_others = tell_others
        self.on_round: Callable[[int, int], None] = lambda _asked, _served: None
        """Told of each round how many were asked for, and how many got something."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def wait(
        self, worker_id: WorkerId, ask: Ask, wait: timedelta, gone: Gone, *, pool: PoolId | None = None
    ) -> list[Claim]:
        """The claims of this worker, or none after `wait`. What it gets while it is `gone` is given back.

        A worker waits once: a newer call ends the older one, which is answered with nothing.
        """
        check_ask(ask)
        waiter = self._join(_Waiter(worker_id, ask, (pool, ask.types, ask.models), once=wait <= timedelta(0)))
        answer, leaving = asyncio.wrap_future(waiter.answer), asyncio.ensure_future(gone())
        limit = None if waiter.once else wait.total_seconds()
        try:
            await asyncio.wait({answer, leaving}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self._leave(waiter, at_once=leaving.done())
            claims = await answer
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise
        finally:
            leaving.cancel()
        if claims and leaving.done() and not leaving.cancelled():
            self._give_back(worker_id, claims)
            return []
        return claims

    def ring(self) -> None:
        """There may be jobs: called after everything that queues some."""
        self.wake()
        self.tell_others()

    def wake(self) -> None:
        """The same, heard from another replica."""
        with self._news:
            self._rung += 1
            for line in self._lines.values():
                line.empty_until, line.in_vain, line.size = 0.0, 0, FIRST
            self._news.notify()

    def stop(self) -> None:
        """Everybody who waits is answered, and what was given back is given back."""
        with self._news:
            self._stopped = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _join(self, waiter: _Waiter) -> _Waiter:
        waiter.answer.set_running_or_notify_cancel()
        with self._news:
            if self._stopped:
                waiter.answer.set_result([])
                return waiter
            if (older := self._waiting.get(waiter.worker_id)) is not None:
                self._end(older, [])
            self._waiting[waiter.worker_id] = waiter
            line = self._line(waiter.key)
            # What it already holds is not seen by a look at the queue, so no empty queue answers that.
            if waiter.once or waiter.ask.resume or not line.known_empty(self._now()):
                self._at_once[waiter.worker_id] = waiter
                self._news.notify()
            else:
                line.waiting[waiter.worker_id] = waiter
            if self._thread is None:
                self._thread = Thread(target=self._run, name="dispatcher", daemon=True)
                self._thread.start()
        return waiter

    def _leave(self, waiter: _Waiter, *, at_once: bool) -> None:
        """Its time is over. A round that is under way for it is waited for: it may have brought something."""
        with self._news:
            if waiter.asked and not at_once:
                waiter.once = True
            elif not waiter.answer.done():
                self._end(waiter, [])

    def _abandon(self, waiter: _Waiter) -> None:
        self._leave(waiter, at_once=True)
        claims = [] if waiter.answer.exception() else waiter.answer.result()
        if claims:
            self._give_back(waiter.worker_id, claims)

    def _give_back(self, worker_id: WorkerId, claims: list[Claim]) -> None:
        with self._news:
            self._returned.append((worker_id, claims))
            self._news.notify()

    def _run(self) -> None:
        while True:
            with self._news:
                returned, rung, batch = [*self._returned], self._rung, self._next()
                self._returned.clear()
                if not (returned or batch):
                    if self._stopped:
                        break
                    self._news.wait(self._pause())
            for worker_id, claims in returned:
                self._hand_on(worker_id, claims)
            if batch:
                self._serve(batch, rung)
        with self._news:
            for waiter in [*self._waiting.values()]:
                self._end(waiter, [])

    def _next(self) -> list[_Waiter]:
        """Who is asked for now; each line in its turn, and none whose queue was just seen empty."""
        batch: list[_Waiter] = []
        if self._stopped:
            return batch
        while self._at_once and len(batch) < MOST:
            batch.append(self._at_once.popitem(last=False)[1])
        now = self._now()
        for key, line in [*self._lines.items()]:
            if line.empty_until > now or len(batch) >= MOST:
                continue
            if not line.waiting:
                del self._lines[key]
                continue
            room = min(line.size, len(line.waiting), MOST - len(batch))
            batch += [line.waiting.popitem(last=False)[1] for _ in range(room)]
            self._lines.move_to_end(key)
        for waiter in batch:
            waiter.asked = True
        return batch

    def _serve(self, batch: Sequence[_Waiter], rung: int) -> None:
        claims: defaultdict[WorkerId, list[Claim]] = defaultdict(list)
        try:
            for claim in self._claim(self._services, {each.worker_id: each.ask for each in batch}):
                claims[claim.worker_id].append(claim)
        except Exception as error:  # noqa: BLE001  (it belongs to those who asked; the others still need this thread)
            self._refuse(batch, error)
            return
        with self._news:
            for waiter in batch:
                self._answer(waiter, claims.get(waiter.worker_id, []))
            if rung == self._rung:
                self._remember(batch, claims)
        self.on_round(len(batch), len(claims))

    def _answer(self, waiter: _Waiter, claims: list[Claim]) -> None:
        """Goes to whoever waits for this worker by now, be it a newer call."""
        waiter.asked = False
        current = self._waiting.get(waiter.worker_id)
        if claims and (current is None or not current.takes(claims)):
            self._returned.append((waiter.worker_id, claims))
            if current is waiter:
                self._end(waiter, [])
        elif current is not None and (claims or (current is waiter and waiter.once)):
            self._end(current, claims)
        elif current is waiter:
            self._line(waiter.key).waiting[waiter.worker_id] = waiter

    def _remember(self, batch: Sequence[_Waiter], claims: Mapping[WorkerId, list[Claim]]) -> None:
        """A queue is empty when it ran out, or gave nothing to so many: one alone may not be allowed any job."""
        asked = Counter(each.key for each in batch)
        served = Counter(each.key for each in batch if each.worker_id in claims)
        for key, count in asked.items():
            line = self._line(key)
            enough = served[key] > 0 or count >= min(MOST, len(line.waiting))
            empty = served[key] < count and enough
            line.size = FIRST if empty else MOST
            line.in_vain = line.in_vain + count if not served[key] else FIRST if empty else 0
            if empty:
                line.empty_until = self._now() + self._poll_s

    def _refuse(self, batch: Sequence[_Waiter], error: Exception) -> None:
        log.warning("dispatcher.failed", workers=len(batch), reason=f"{type(error).__name__}: {error}")
        with self._news:
            for waiter in batch:
                waiter.asked = False
                if not waiter.answer.done():
                    self._forget(waiter)
                    waiter.answer.set_exception(error)

    def _hand_on(self, worker_id: WorkerId, claims: list[Claim]) -> None:
        """To the same worker where it waits again, else back into the queue."""
        with self._news:
            current = self._waiting.get(worker_id)
            if current is not None and current.takes(claims):
                self._end(current, claims)
                return
        for claim in claims:
            try:
                release_job(
                    self._services, claim.key, "the worker was gone before it heard of the job", who="leader"
                )
            except HerdsmanError as error:  # its claim will run out
                log.warning("dispatcher.not_given_back", job=claim.key.job_id, reason=str(error))
        self.ring()

    def _end(self, waiter: _Waiter, claims: list[Claim]) -> None:
        self._forget(waiter)
        waiter.answer.set_result(claims)

    def _forget(self, waiter: _Waiter) -> None:
        if self._waiting.get(waiter.worker_id) is waiter:
            del self._waiting[waiter.worker_id]
            self._at_once.pop(waiter.worker_id, None)
            self._line(waiter.key).waiting.pop(waiter.worker_id, None)

    def _line(self, key: Key) -> _Line:
        return self._lines.setdefault(key, _Line())

    def _pause(self) -> float | None:
        """Until the first empty queue has to be looked at again."""
        ends = [line.empty_until for line in self._lines.values() if line.waiting]
        return max(0.0, min(ends) - self._now()) if ends else None

    def _now(self) -> float:
        return self._clock.monotonic()
