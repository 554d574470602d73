"""What this process writes for workers and submitters: all that came meanwhile in one transaction.

Jobs that come, jobs that end, and workers that wait for one meet here, so that a job can be stored and given to a worker
at once. Everybody is answered after the commit.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import structlog

from herdsman.concurrency import Gone, Waiter, WaitQueue
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import HerdsmanError, StoreMisconfigured, StoreUnavailable, TooMany
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs.assign import check_request, note_types
from herdsman.jobs.commands import add_jobs, draft_of, named_once, rules_for
from herdsman.jobs.model import Claim, NewJob, Submitted
from herdsman.jobs.protocol import ClaimRequest, FinishAndClaim, FinishResult
from herdsman.jobs.sql import Draft
from herdsman.jobs.worker_commands import Report, end_and_give, release_job
from herdsman.limits.admit import NoBucket, make_buckets
from herdsman.ports import Clock

log = structlog.get_logger()
FIRST = 32
"""How many are asked for at first: one job that came needs one worker, not all that wait."""
MOST = 200
"""So many jobs come, and so many workers are asked for, in one transaction."""
MOST_ENDINGS = 400
ROOM = 10_000
POLL = timedelta(seconds=1)
"""How long a queue that was seen empty is taken to be so, unless somebody rings."""
_SOON = timedelta(seconds=1)
_TRIES = 6
Key = tuple[PoolId | None, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one transaction does."""

    news: Sequence[NewJob] = ()
    reports: Sequence[Report] = ()
    asks: Mapping[WorkerId, ClaimRequest] = field(default_factory=dict[WorkerId, ClaimRequest])
    """Of workers that only ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    submitted: Sequence[Submitted | HerdsmanError]
    """Each is answered by itself: a limit refuses only the jobs that it is for."""
    told: Sequence[Sequence[FinishResult]]
    """For each report."""
    claims: Sequence[Claim]


def write_round(services: Services, wanted: Round) -> Written:
    """Committed when this returns. Where one of many spoils it, nothing is done, and its error is raised."""
    submitted = [_draft(services, new) for new in wanted.news]
    drafts = named_once(draft for draft in submitted if isinstance(draft, Draft))
    asks = {**wanted.asks, **{each.worker_id: each.then for each in wanted.reports if each.then is not None}}
    note_types(services, asks)
    policy, rules = services.rules(), rules_for(services, [draft.new for draft in drafts]) if drafts else None
    # Almost every submission is a new one: where nothing limits it, insert first and look only when that fails.
    look = rules is not None

    def write(tx: Tx) -> Written:
        groups = [[draft] for draft in {draft.job_id: draft for draft in drafts}.values()]
        stored = iter(add_jobs(tx, services, drafts, groups, rules, look=look) if drafts else ())
        told, claims = end_and_give(tx, services, wanted.reports, wanted.asks, policy)
        answers = [next(stored) if isinstance(each, Draft) else each for each in submitted]
        return Written(submitted=answers, told=told, claims=claims)

    for _ in range(_TRIES):
        try:
            return services.database.transact(write)
        except NoBucket as met:
            assert rules is not None
            make_buckets(services, rules, met.agents)
        except (
            Duplicate
        ):  # the same job was submitted before, or a worker that asks twice got a job in this very moment
            look = True
    if len(wanted.news) + len(wanted.reports) + len(wanted.asks) > 1:
        raise Duplicate("one of many is there already")
    if wanted.news:
        raise StoreUnavailable("the same jobs are being submitted by many at once: send the request again")
    # It has its work from the other request.
    without = [replace(each, then=None) for each in wanted.reports]
    return write_round(services, Round(reports=without)) if without else Written(submitted=(), told=(), claims=())


def _draft(services: Services, new: NewJob) -> Draft | HerdsmanError:
    try:
        return draft_of(services, new)
    except HerdsmanError as error:
        return error


@dataclass(eq=False, slots=True)
class _Submission(Waiter[Submitted]):
    new: NewJob


@dataclass(eq=False, slots=True)
class _Report(Waiter[FinishAndClaim]):
    report: Report


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

    def open(self, size: int) -> None:
        """There is news for it."""
        self.empty_until, self.in_vain, self.size = 0.0, 0, size


_Item = _Submission | _Report | _Waiter


class Writer(WaitQueue[Any, Any]):
    """A round begins when there is something to write: when a job comes or ends, when it is woken, when a worker comes,
    and every `poll` while workers wait. No timer: it takes what arrived while the last one ran, and a lone call waits for
    nobody."""

    def __init__(
        self,
        services: Services,
        clock: Clock,
        *,
        poll: timedelta = POLL,
        room: int = ROOM,
        wake_others: Callable[[], None] = lambda: None,
        on_round: Callable[[int, int], None] = lambda _asked, _served: None,
        on_submitted: Callable[[Sequence[NewJob], Sequence[Submitted | HerdsmanError]], None] = lambda _news, _done: (
            None
        ),
        write: Callable[[Services, Round], Written] = write_round,
    ) -> None:
        """`wake_others` wakes the other replicas; `on_round` counts who was asked for, and who got a job."""
        super().__init__("writer")
        self._services = services
        self._clock = clock
        self._write = write
        self._poll_s = poll.total_seconds()
        self._room = room
        self._wake_others = wake_others
        self._on_round = on_round
        self._on_submitted = on_submitted
        self._calls: deque[_Submission | _Report] = deque()
        self._waiting: dict[WorkerId, _Waiter] = {}
        self._lines: defaultdict[Key, _Line] = defaultdict(_Line)
        self._at_once: OrderedDict[WorkerId, _Waiter] = OrderedDict()
        self._rung_before = 0

    @property
    def waiting(self) -> int:
        """Workers that wait for a job."""
        return len(self._waiting)

    @property
    def calls(self) -> int:
        """Submissions and reports that wait for their round."""
        return len(self._calls)

    async def submit(self, new: NewJob) -> Submitted:
        """`TooMany` when so many wait that the answer would come too late; nothing was done then (J10)."""
        if len(self._calls) >= self._room:
            raise TooMany(f"{self._room} requests are waiting already: send it again", retry_after=_SOON)
        return await self._call(_Submission(new))

    async def finish(self, report: Report) -> FinishAndClaim:
        """One ending that is refused does not hold up the others; the next jobs come with the answer."""
        report.check()
        return await self._call(_Report(report))

    async def wait(
        self, worker_id: WorkerId, ask: ClaimRequest, wait: timedelta, gone: Gone, *, pool: PoolId | None = None
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

    async def _call(self, call: Any) -> Any:
        """A call whose round has begun is done to its end; one that was given up before is left out."""
        with self._news:
            self._calls.append(call)
            self._start()
            self._news.notify()
        try:
            return await call.answer
        finally:
            call.last = True

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

    def _remove(self, waiter: _Item) -> None:
        if isinstance(waiter, _Waiter) and self._waiting.get(waiter.worker_id) is waiter:
            del self._waiting[waiter.worker_id]
            self._at_once.pop(waiter.worker_id, None)
            self._lines[waiter.key].waiting.pop(waiter.worker_id, None)

    def _next(self, *, timed_out: bool) -> Sequence[_Item]:
        """The calls in their order; then each line in its turn, and none whose queue was just seen empty."""
        _ = timed_out
        calls, busy = self._next_calls()
        if self._stopped:
            return calls
        self._open_lines([each.new for each in calls if isinstance(each, _Submission)])
        batch: list[_Waiter] = []
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
            if waiter.worker_id in busy:  # one question of a worker at a time
                self._at_once[waiter.worker_id] = waiter
        batch = [waiter for waiter in batch if waiter.worker_id not in busy]
        for item in (*calls, *batch):
            item.serving = True
        return [*calls, *batch]

    def _open_lines(self, news: Sequence[NewJob]) -> None:
        if self._rung_before != self._rung:
            self._rung_before = self._rung
            for line in self._lines.values():
                line.open(FIRST)
        elif news:
            for (_, types, _), line in self._lines.items():
                if fitting := sum(1 for new in news if not types or new.type in types):
                    line.open(fitting)

    def _next_calls(self) -> tuple[list[_Submission | _Report], set[WorkerId]]:
        """With the workers that ask for jobs in them."""
        calls: list[_Submission | _Report] = []
        busy, endings = set[WorkerId](), 0
        while self._calls and len(calls) < MOST and endings < MOST_ENDINGS:
            call = self._calls[0]
            if isinstance(call, _Report) and not call.last:
                if call.report.worker_id in busy:
                    break
                busy.add(call.report.worker_id)
                endings += len(call.report.endings)
            self._calls.popleft()
            if not call.last:
                calls.append(call)
        return calls, busy

    def _pause(self) -> float | None:
        """Until the first empty queue has to be looked at again."""
        ends = [line.empty_until for line in self._lines.values() if line.waiting]
        return max(0.0, min(ends) - self._clock.monotonic()) if ends else None

    def _serve(self, batch: Sequence[_Item]) -> None:
        calls = [each for each in batch if isinstance(each, _Submission)]
        reports = [each for each in batch if isinstance(each, _Report)]
        waiters = [each for each in batch if isinstance(each, _Waiter)]
        wanted = Round(
            news=[each.new for each in calls],
            reports=[each.report for each in reports],
            asks={each.worker_id: each.ask for each in waiters},
        )
        try:
            written = self._write(self._services, wanted)
        except Exception as error:  # noqa: BLE001  (it belongs to those who asked; the others still need this thread)
            if len(batch) > 1 and not isinstance(error, StoreUnavailable | StoreMisconfigured):
                half = len(batch) // 2  # one bad item spoils no other: it is found by halves
                self._serve(batch[:half])
                self._serve(batch[half:])
                return
            log.warning("writer.failed", items=len(batch), reason=f"{type(error).__name__}: {error}")
            with self._news:
                for item in batch:
                    item.serving = False
                    if not item.done:
                        self._finish(item, error)
            return
        claims: defaultdict[WorkerId, list[Claim]] = defaultdict(list)
        for claim in written.claims:
            claims[claim.worker_id].append(claim)
        with self._news:
            for call, submitted in zip(calls, written.submitted, strict=True):
                self._finish(call, submitted)
            for call, told in zip(reports, written.told, strict=True):
                given = claims.pop(call.report.worker_id, [])
                self._finish(call, FinishAndClaim(told=told, claims=given))
                if call.last:  # nobody hears of them
                    self._returned.append(given)
            self._answer_waiters(waiters, claims)
        if waiters:
            self._on_round(len(waiters), len(claims))
        if calls:
            self._announce(wanted.news, written.submitted)

    def _announce(self, news: Sequence[NewJob], done: Sequence[Submitted | HerdsmanError]) -> None:
        self._on_submitted(news, done)
        made = [each for each in done if isinstance(each, Submitted) and each.created]
        if made:
            self._wake_others()
        if any(each.pool is not None for each in made):  # other lines may take them than were asked
            self.wake()

    def _answer_waiters(self, waiters: Sequence[_Waiter], claims: Mapping[WorkerId, list[Claim]]) -> None:
        for waiter in waiters:
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
        asked = Counter(each.key for each in waiters if self._rung_before == self._rung)
        served = Counter(each.key for each in waiters if each.worker_id in claims)
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
                log.warning("writer.not_given_back", job=claim.key.job_id, reason=str(error))
        self.ring()
