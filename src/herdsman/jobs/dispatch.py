"""Workers that wait for a job, held by this process and served together: one transaction for all that ask."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from herdsman.concurrency import Gone, Waiter, WaitQueue
from herdsman.context import Services
from herdsman.errors import HerdsmanError
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.assign import check_request, claim_for
from herdsman.jobs.model import Claim
from herdsman.jobs.protocol import ClaimRequest
from herdsman.jobs.worker_commands import release_job
from herdsman.ports import Clock

log = structlog.get_logger()
FIRST = 32
"""How many are asked for at first: one job that came needs one worker, not all that wait."""
MOST = 200
POLL = timedelta(seconds=1)
"""How long a queue that was seen empty is taken to be so, unless somebody rings."""
Key = tuple[PoolId | None, tuple[str, ...], tuple[str, ...]]


@dataclass(eq=False, slots=True)
class _Waiter(Waiter[list[Claim]]):
    worker_id: WorkerId
    ask: ClaimRequest
    key: Key


@dataclass(eq=False, slots=True)
class _Line:
    """Those who would take the same jobs, the one that was asked for longest ago first."""

    waiting: OrderedDict[WorkerId, _Waiter] = field(default_factory=OrderedDict[WorkerId, _Waiter])
    size: int = FIRST
    empty_until: float = 0.0
    in_vain: int = 0
    """How many were asked for in vain since there was news. A few prove nothing: they may not be allowed any job."""


class Dispatcher(WaitQueue[_Waiter, list[Claim]]):
    """Asks the database when it is woken, when a worker comes, and every `poll`."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        *,
        poll: timedelta = POLL,
        wake_others: Callable[[], None] = lambda: None,
        on_round: Callable[[int, int], None] = lambda _asked, _served: None,
        claim: Callable[[Services, Mapping[WorkerId, ClaimRequest]], Sequence[Claim]] = claim_for,
    ) -> None:
        """`wake_others` wakes the other replicas; `on_round` counts who was asked for, and who got a job."""
        super().__init__("dispatcher")
        self._services = services
        self._clock = clock
        self._claim = claim
        self._poll_s = poll.total_seconds()
        self._wake_others = wake_others
        self._on_round = on_round
        self._waiting: dict[WorkerId, _Waiter] = {}
        self._lines: defaultdict[Key, _Line] = defaultdict(_Line)
        self._at_once: OrderedDict[WorkerId, _Waiter] = OrderedDict()
        self._rung_before = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def wait(
        self,
        worker_id: WorkerId,
        ask: ClaimRequest,
        wait: timedelta,
        gone: Gone,
        *,
        pool: PoolId | None = None,
    ) -> list[Claim]:
        """The claims of this worker, or none after `wait`. What it gets while it is `gone` is given back.

        A worker waits once: a newer call ends the older one, which is answered with nothing.
        """
        check_request(ask)
        at_once = wait <= timedelta(0)
        waiter = _Waiter(worker_id, ask, (pool, ask.types, ask.models), last=at_once)
        return await self._wait(waiter, None if at_once else wait, gone)

    def ring(self) -> None:
        """There may be jobs: called after everything that queues some. Other replicas that hear of it `wake` alone."""
        self.wake()
        self._wake_others()

    def _waiters(self) -> Iterable[_Waiter]:
        return self._waiting.values()

    def _nothing(self, waiter: _Waiter) -> list[Claim]:
        _ = waiter
        return []

    def _add(self, waiter: _Waiter) -> None:
        if (older := self._waiting.get(waiter.worker_id)) is not None:
            self._finish(older, [])
        self._waiting[waiter.worker_id] = waiter
        line = self._lines[waiter.key]
        known_empty = line.in_vain >= FIRST and line.empty_until > self._clock.monotonic()
        # What it already holds is not in the queue, so no empty queue answers that.
        if waiter.last or waiter.ask.resume or not known_empty:
            self._at_once[waiter.worker_id] = waiter
            self._news.notify()
        else:
            line.waiting[waiter.worker_id] = waiter

    def _remove(self, waiter: _Waiter) -> None:
        if self._waiting.get(waiter.worker_id) is waiter:
            del self._waiting[waiter.worker_id]
            self._at_once.pop(waiter.worker_id, None)
            self._lines[waiter.key].waiting.pop(waiter.worker_id, None)

    def _next(self, *, timed_out: bool) -> Sequence[_Waiter]:
        """Each line in its turn, and none whose queue was just seen empty."""
        _ = timed_out
        batch: list[_Waiter] = []
        if self._stopped:
            return batch
        if self._rung_before != self._rung:
            self._rung_before = self._rung
            for line in self._lines.values():
                line.empty_until, line.in_vain, line.size = 0.0, 0, FIRST
        while self._at_once and len(batch) < MOST:
            batch.append(self._at_once.popitem(last=False)[1])
        now = self._clock.monotonic()
        for key, line in [*self._lines.items()]:
            if line.empty_until > now or len(batch) >= MOST:
                continue
            if not line.waiting:
                del self._lines[key]
                continue
            room = min(line.size, len(line.waiting), MOST - len(batch))
            batch += [line.waiting.popitem(last=False)[1] for _ in range(room)]
            self._lines[key] = self._lines.pop(key)  # to the end
        for waiter in batch:
            waiter.serving = True
        return batch

    def _pause(self) -> float | None:
        """Until the first empty queue has to be looked at again."""
        ends = [line.empty_until for line in self._lines.values() if line.waiting]
        return max(0.0, min(ends) - self._clock.monotonic()) if ends else None

    def _serve(self, batch: Sequence[_Waiter]) -> None:
        claims: defaultdict[WorkerId, list[Claim]] = defaultdict(list)
        try:
            for claim in self._claim(self._services, {each.worker_id: each.ask for each in batch}):
                claims[claim.worker_id].append(claim)
        except Exception as error:  # noqa: BLE001  (it belongs to those who asked; the others still need this thread)
            log.warning("dispatcher.failed", workers=len(batch), reason=f"{type(error).__name__}: {error}")
            with self._news:
                for waiter in batch:
                    waiter.serving = False
                    if not waiter.answer.done():
                        self._fail(waiter, error)
            return
        self._on_round(len(batch), len(claims))
        with self._news:
            for waiter in batch:
                waiter.serving, given = False, claims.get(waiter.worker_id, [])
                if self._waiting.get(waiter.worker_id) is not waiter:
                    # Where a newer call waits for this worker, they are that one's, if it takes them.
                    if given:
                        self._returned.append(given)
                elif given or waiter.last:
                    self._finish(waiter, given)
                else:
                    self._lines[waiter.key].waiting[waiter.worker_id] = waiter
            # A queue is empty when it ran out, or gave nothing to so many: one alone may not be allowed any job.
            asked = Counter(each.key for each in batch if self._rung_before == self._rung)
            served = Counter(each.key for each in batch if each.worker_id in claims)
            for key, count in asked.items():
                line = self._lines[key]
                enough = served[key] > 0 or count >= min(MOST, len(line.waiting))
                empty = served[key] < count and enough
                line.size = FIRST if empty else MOST
                line.in_vain = line.in_vain + count if not served[key] else FIRST if empty else 0
                if empty:
                    line.empty_until = self._clock.monotonic() + self._poll_s

    def _take_back(self, result: list[Claim]) -> None:
        """To the same worker where it waits again, else back into the queue."""
        if not result:
            return
        with self._news:
            current = self._waiting.get(result[0].worker_id)
            types = () if current is None else current.ask.types
            if current is not None and (not types or all(claim.type in types for claim in result)):
                self._finish(current, result)
                return
        for claim in result:
            try:
                release_job(self._services, claim.key, "the worker was gone before it heard of the job", who="leader")
            except HerdsmanError as error:  # its claim will run out
                log.warning("dispatcher.not_given_back", job=claim.key.job_id, reason=str(error))
        self.ring()
