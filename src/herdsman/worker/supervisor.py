"""Claims jobs, has them run in a process of their own, and reports how they ended.

The supervisor never runs user code, so it can always send heartbeats, stop jobs and report.
"""

import json
import math
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from herdsman.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import MOST_AT_ONCE, SLOTS, ClaimRequest, Done, Ending, Failed, FinishResult, GivenBack
from herdsman.ports import Clock, SystemThreads, Threads, WorkQueue
from herdsman.worker.ahead import Durations, Prefetch, kept_ahead, take_ahead
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.heartbeat import Keeper
from herdsman.worker.job_log import LogBook
from herdsman.worker.job_run import Abandoned, AsyncCalls, JobRunner
from herdsman.worker.registry import HandlerSpec
from herdsman.worker.stop_rules import DeadMan, ExitReason, Leaving, Limits, WorkerExit

_INSTANT_S = 0.001
_MOST_BEGUN = 1_000
"""How many claims are remembered as begun."""
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=100), timedelta(seconds=2)
_LARGE = 1024 * 1024
"""Results above this wait on disk: an outage may be long, and a batch may have a hundred of them."""

_BRIEF_S, _BRIEFLY_S = 0.1, 1.0
"""Jobs shorter than this have no line each; how many there were is said so often."""
_OFTEN_S = 0.1
_TOGETHER_S = 0.01
"""Ends wait so long for others, while more than they are waits in hand."""

Claimed = tuple[Sequence[Claim], float]
"""Claims, and when they were asked for."""


@dataclass(frozen=True, slots=True)
class Group:
    """Claims that begin together."""

    claims: Sequence[Claim]
    asked_at: float
    ahead: bool
    """They were not begun with the claim, and may be given back."""


@dataclass(slots=True, kw_only=True)
class Running:
    """What is at work."""

    began: float
    expected: float | None
    """How long such jobs took lately."""
    ahead: bool
    asked: bool = False
    """For more ahead."""
    shown: bool = False


@dataclass(slots=True)
class Exchange:
    """Ends that are told, and claims that are asked for, while a job runs."""

    found: Claimed = ((), 0.0)
    over: bool = False
    error: Exception | None = None


@dataclass(kw_only=True)
class Supervisor:
    queue: WorkQueue
    keeper: Keeper
    clock: Clock
    limits: Limits
    warm: HandlerPool
    say: Callable[[str], None]
    wait: timedelta = timedelta(seconds=5)
    """How long one call waits for a job. A drain while nothing runs may take as long."""
    pause: timedelta = timedelta(seconds=1)
    """How long to wait before asking again, where the queue answered at once that there is nothing."""
    deadman: DeadMan = field(default_factory=DeadMan)
    end_instance: Callable[[], None] | None = None
    """Asks the provider to end this very machine."""
    unfit: Callable[[], Mapping[str, str]] = dict[str, str]
    """Types of jobs that cannot run at the moment, and why: their service is away."""
    short: Callable[[], str | None] = lambda: None
    """What jobs would lack on this machine at the moment, such as disk."""
    alive: Callable[[], None] = lambda: None
    """Called again and again while this loop turns."""
    threads: Threads = field(default_factory=SystemThreads)
    prefetch: Prefetch = field(default_factory=Prefetch)
    _asked: int = 0
    _leaving_since: float | None = None
    _unsure_until: float = -math.inf
    _troubled: bool = False

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()
        # A claim counts from when it was asked for, since nobody knows when it was made: a long wait would use it up.
        self._wait = min(self.wait, self.limits.self_fence / 4)
        self._calls = AsyncCalls(self.queue, self.clock, patience=self.limits.self_fence, threads=self.threads)
        self._runner = JobRunner(
            keeper=self.keeper,
            clock=self.clock,
            limits=self.limits,
            leaving=self._turn,
            calls=self._calls,
            say=self.say,
            meanwhile=self._meanwhile,
        )
        self._begun: OrderedDict[ClaimKey, None] = OrderedDict()
        self._durations = Durations(self.prefetch.known)
        self._waiting: deque[Group] = deque()
        """What begins next, in its order."""
        self._running: Running | None = None
        self._ends: list[Ending] = []
        """Those that nobody was told yet."""
        self._slot = 0
        self._exchange: Exchange | None = None
        """Under way beside the job at work; never two at once."""
        self._over = self.threads.event()
        self._line = self.threads.line("exchange")
        self._look_at = self._urgent_at = self._untold_since = -math.inf
        self._brief: set[ClaimKey] = set()
        """Jobs that are too short for a line each."""
        self._brief_done, self._brief_said_at = 0, -math.inf

    def drain(self) -> None:
        """Finish the running job and exit; called again, give it back and exit. Safe in a signal handler."""
        self._asked += 1

    def run(self) -> WorkerExit:
        """Until drained, or until there is a reason to end."""
        with self.keeper.beating():
            try:
                ended = self._serve()
            finally:
                self.warm.close()
                self._calls.close()
                self._line.shutdown(wait=False, cancel_futures=True)
            if ended.how is ExitReason.BROKEN:
                self.keeper.beat()  # so that whoever started the machine learns why
            if ended.how is not ExitReason.DISMISSED:
                try:
                    self.queue.leave()
                except HerdsmanError as error:
                    self.say(f"the worker could not be deregistered: {error}")
        if ended.how is ExitReason.UNOWNED and self.end_instance is not None:
            try:
                self.end_instance()
            except (HerdsmanError, OSError) as error:
                self.say(f"the provider could not be asked to end this machine: {error}")
        return ended

    def _serve(self) -> WorkerExit:
        while (ended := self._turn().exit) is None:
            was_ready = self.warm.ready
            if not self.warm.get_ready(self.limits.poll, self.keeper.heard.load):
                continue
            if not was_ready:
                self.keeper.hurry()  # jobs may come from now on, and a swap waits for this heartbeat
            lacking = self.short()
            if lacking is not None or not self._ask().types:
                unfit = "; ".join(f"{kind}: {why}" for kind, why in sorted(self.unfit().items()))
                self._complain(f"no job is taken: {lacking or unfit}")
                self._sleep(self.pause)
                continue
            claims, asked_at = self.claim()
            while claims:
                claims, asked_at = self.work(claims, asked_at)
        return ended

    def _turn(self) -> Leaving:
        self.alive()
        return self._leaving()

    def _leaving(self) -> Leaving:
        heard, now = self.keeper.heard, self.clock.monotonic()
        if self._leaving_since is None and (heard.drain or self._asked):
            self._leaving_since = now
            self.say("draining: no more jobs are taken")
        unowned = self.deadman.falls(now=now, began=self._began, answered_at=heard.answered_at)
        ended: WorkerExit | None = None
        if heard.dismissed is not None:
            ended = WorkerExit(ExitReason.DISMISSED, heard.dismissed)
        elif self.warm.fault is not None:
            ended = WorkerExit(ExitReason.BROKEN, self.warm.fault)
        elif unowned is not None:
            ended = WorkerExit(ExitReason.UNOWNED, unowned)
        elif self._leaving_since is not None:
            ended = WorkerExit(ExitReason.DRAINED, "drained")
        at_once = self._asked + heard.drain > 1
        return Leaving(since=self._leaving_since, at_once=at_once, unowned=unowned, exit=ended)

    def _ask(self, *, ahead: bool = False) -> ClaimRequest:
        """Only while the process is warm: the jobs begin with the claim. Without types where none can run now.

        `ahead` asks for what follows the first job too, where it is a short one.
        """
        unfit = self.unfit()
        specs = {kind: spec for kind, spec in self.warm.specs.items() if kind not in unfit}
        return ClaimRequest(
            types=tuple(sorted(specs)),
            most={kind: spec.batch for kind, spec in specs.items() if spec.batch > 1},
            begin=True,
            ahead=self._wanted(self.clock.monotonic()) if ahead else {},
            models=self.warm.models.names,
        )

    def claim(self) -> Claimed:
        """Jobs to work on, if there are any."""
        self._say_brief(0)
        ask, asked_at = self._ask(), self.clock.monotonic()
        try:
            if self.clock.monotonic() < self._unsure_until:
                # Nothing is at work here now. What we hold all the same began when it was given out, so its
                # token is used.
                if held := self.queue.held():
                    self.queue.finish(
                        [GivenBack(key, "the answer that brought it was lost", begun=False) for key in held]
                    )
                asked_at = self.clock.monotonic()
            claims = self.queue.claim(ask, self._wait)
        except (StaleWrite, NotFound) as error:
            self.keeper.dismiss(str(error))
            return (), asked_at
        except HerdsmanError as error:
            self._note_lost_answer()
            self.keeper.note_outage(error, asked_at)
            self._sleep(self.pause)
            return (), asked_at
        self._troubled = False
        self.keeper.note_connected(asked_at)
        if claims:
            self._unsure_until = -math.inf
            if self.keeper.not_active is not None:
                # Now, and not with the next heartbeat: the log names jobs after it.
                self.keeper.note_active(None)
        elif self.clock.monotonic() - asked_at <= self._wait.total_seconds() / 2:
            self._sleep(self.pause)
        return claims, asked_at

    def _note_lost_answer(self) -> None:
        """An answer was lost, and with it perhaps claims. The request may still be carried out for a while, so they are
        looked for again and again until then."""
        self._unsure_until = self.clock.monotonic() + self.limits.self_fence.total_seconds()

    def work(self, claims: Sequence[Claim], asked_at: float) -> Claimed:
        """Runs them, and what was taken ahead meanwhile, to their ends; then the claims that came back with the last."""
        spec = self.warm.specs.get(claims[0].type)
        if spec is not None and spec.linger_ms and len(claims) < spec.batch:
            claims = self.fill_up(claims, spec)
        self._take(claims, asked_at)
        while self._waiting or self._exchange is not None:
            if not self._waiting:
                self._await_exchange()
                continue
            self._run(self._waiting.popleft())
            self._collect()
            self._give_back(self.clock.monotonic())
        return self._report()

    def _take(self, claims: Sequence[Claim], asked_at: float) -> None:
        """Claims that were asked for with free hands: the first, or the first batch, begins now."""
        # Several types of batches come only after a lost answer.
        rest, first = deque(claims), True
        while rest:
            kind = rest[0].type
            spec = self.warm.specs.get(kind)
            size = 1 if spec is None else spec.batch
            group = [claim for claim in rest if claim.type == kind][:size]
            rest = deque(claim for claim in rest if claim not in group)
            self._waiting.append(Group(group, asked_at, ahead=not first and size == 1))
            first = False
        if len(self._waiting) > 1:  # the later ones wait for the first, and are kept alive meanwhile
            self.keeper.hold({claim.key: LogBook() for claim in claims}, asked_at)
        self._slot = len(claims)

    def fill_up(self, claims: Sequence[Claim], spec: HandlerSpec) -> Sequence[Claim]:
        """A batch that is not full waits a moment for the rest."""
        if self.warm.is_behind(self.keeper.heard.load):
            return claims
        more = ClaimRequest(
            types=(spec.type,),
            most={spec.type: spec.batch - len(claims)},
            beside=len(claims),
            begin=True,
            models=self.warm.models.names,
        )
        try:
            found = self.queue.claim(more, timedelta(milliseconds=spec.linger_ms))
        except HerdsmanError as error:
            self._note_lost_answer()
            self._complain(f"a batch could not be filled up: {error}")
            return claims
        # A job that comes again was taken back from us meanwhile: only its newer claim counts.
        return [*{claim.key.job_id: claim for claim in (*claims, *found)}.values()]

    def _run(self, group: "Group") -> None:
        """Runs a group of one type; how each job ended is told afterwards."""
        claims = group.claims
        again = [claim for claim in claims if claim.key in self._begun]
        new = [claim for claim in claims if claim.key not in self._begun]
        kind = claims[0].type
        expected = self._durations.of(kind)
        self._note_begun(group, new, expected)
        spec = self.warm.specs.get(kind)
        self._ends += [GivenBack(claim.key, "it was begun here before under this token") for claim in again]
        if spec is None and self._runner.following is not None:
            spec = self._runner.following.spec  # it had begun when its process ended
        if spec is None:
            why = f"no handler for type {kind!r}; here are: {', '.join(sorted(self.warm.specs))}"
            self._ends += [GivenBack(claim.key, why, begun=not group.ahead) for claim in new]
        if spec is None or again:
            self.keeper.hold({claim.key: LogBook() for claim in (claims if spec is None else again)}, group.asked_at)
        if spec is None or not new:
            return
        self._running = Running(began=self.clock.monotonic(), expected=expected, ahead=group.ahead)
        found = self._runner.work(new, spec, self.warm, group.asked_at)
        self._running = None
        for each in found:
            if isinstance(each, Abandoned):
                self.say(f"job {each.key.job_id} was abandoned: {each.reason}")
                self.keeper.release([each.key])
                continue
            if not self._ends:
                self._untold_since = self.clock.monotonic()
            self._ends.append(each)
            if isinstance(each, Done | Failed) and each.ran is not None and spec.batch == 1:
                self._durations.note(kind, each.ran.total_seconds())

    def _note_begun(self, group: "Group", new: Sequence[Claim], expected: float | None) -> None:
        for claim in new:
            self._begun[claim.key] = None
            if group.ahead:
                self.keeper.note_begun(claim.key)
            if group.ahead and expected is not None and expected < _BRIEF_S:
                self._brief.add(claim.key)
            else:
                self.say(f"job {claim.key.job_id} claimed: {claim.type}, attempt {claim.attempt}")
        while len(self._begun) > _MOST_BEGUN:
            self._begun.popitem(last=False)

    def _report(self) -> Claimed:
        """With free hands: the ends are told, and the next claims are asked for in the same word."""
        ours, self._ends = self._ends, []
        if not ours:
            return (), 0.0
        keys = [ending.key for ending in ours]
        try:
            self.keeper.flush(keys)
            ask = self._ask(ahead=True) if self._may_ask() else None
            return self._finish(ours, ask if ask is not None and ask.types else None)
        finally:
            self.keeper.release(keys)

    def _may_ask(self) -> bool:
        # A worker that has something else to load takes no new job before it has.
        fit = self.warm.ready and not self.warm.is_behind(self.keeper.heard.load) and self.short() is None
        return fit and self.clock.monotonic() >= self._unsure_until and self._leaving().exit is None

    # What goes on while a job runs.

    def _meanwhile(self) -> None:
        """Called again and again: nothing here waits."""
        self._collect()
        running, now = self._running, self.clock.monotonic()
        if self.prefetch.most <= 1 and not self._waiting:
            return
        if running is not None and running.ahead and not running.shown and now - running.began >= self.prefetch.lead_s:
            running.shown = True
            self.keeper.hurry()  # so that it is seen to run
        self._give_back(now)
        if self._exchange is None:
            self._tell_behind(now)
        if self._waiting and running is not None and self._runner.following is None:
            group = self._waiting[0]
            spec = self.warm.specs.get(group.claims[0].type)
            if spec is not None and spec.batch == 1 and group.claims[0].key not in self._begun:
                self._runner.send_ahead(group.claims[0], spec, self.warm)

    def _left(self, now: float) -> float | None:
        """How long the job at work should still run; None where nobody knows, or it has turned out long."""
        running = self._running
        if running is None:
            return 0.0
        if running.expected is None or now - running.began > running.expected + self.prefetch.patience_s:
            return None
        return max(0.0, running.began + running.expected - now)

    def _give_back(self, now: float) -> None:
        """What was taken ahead and should not wait any longer (J14)."""
        heard, leaving = self.keeper.heard, self._leaving()
        ahead = [group for group in self._waiting if group.ahead]
        if not ahead:
            return None
        if leaving.exit is not None or leaving.since is not None:
            return self._let_go(ahead, "the worker drains")
        if self.warm.is_behind(heard.load):
            return self._let_go(ahead, "the worker is to serve something else")
        if not self.warm.ready:
            return self._let_go(ahead, "the handler's process had ended before the job began")
        stopped = heard.cancel | heard.lost.keys()
        if stopped and (groups := [group for group in ahead if group.claims[0].key in stopped]):
            self._let_go(groups, "it was cancelled before it began")
        if now < self._look_at:
            return None
        self._look_at = now + _OFTEN_S
        if (lacking := self.short()) is not None:
            return self._let_go(ahead, lacking)
        if (unfit := self.unfit()) and (groups := [group for group in ahead if group.claims[0].type in unfit]):
            self._let_go(groups, "its service is away")
        running = self._running
        lengths = [self._durations.of(group.claims[0].type) or 0.0 for group in ahead]
        late = 0.0 if running is None else now - running.began - (running.expected or 0.0)
        kept = kept_ahead(lengths, left=self._left(now) or 0.0, late=late, prefetch=self.prefetch)
        return self._let_go(ahead[kept:], "the job before it takes longer than others did")

    def _let_go(self, groups: "Sequence[Group]", why: str) -> None:
        for group in groups:
            key = group.claims[0].key
            in_process = self._runner.following is not None and key in self._runner.following.tasks
            if group not in self._waiting or (in_process and not self._runner.recall(self.warm)):
                continue  # it has begun: it runs like any other
            self._waiting.remove(group)
            if key in self.keeper.heard.lost:
                self.keeper.release([key])
            else:
                self._ends.append(GivenBack(key, why, begun=False))

    def _tell_behind(self, now: float) -> None:
        """The ends that have come meanwhile are told together while the next job runs, and more is asked for."""
        # A few at a time: an exchange costs as much for one as for ten.
        if self._ends and len(self._ends) < len(self._waiting) and now - self._untold_since < _TOGETHER_S:
            return
        ask = None if self._running is None else self._more(now, self._running)
        if not self._ends and ask is None:
            return
        ends, self._ends = self._ends, []
        self._exchange = Exchange()
        self._over.clear()
        self._line.submit(self._carry_out, self._exchange, ends, ask)

    def _more(self, now: float, running: Running) -> ClaimRequest | None:
        """What to ask for ahead. Alone it is asked once behind each job, and now and then whether more urgent ones wait."""
        left, before = self._left(now), None
        places = [group.claims[0].place for group in self._waiting if group.ahead]
        if places and left is not None and left > self.prefetch.span_s and now >= self._urgent_at:
            ahead, before = dict.fromkeys(self._expected(), 1), min(places)
        elif self._ends or not (running.asked or self._waiting):
            ahead = self._wanted(now)
        else:
            return None
        if not ahead or not self._may_ask():
            return None
        running.asked, self._urgent_at = True, now + self.prefetch.urgent_s
        held = min(MOST_AT_ONCE, 1 + len(self._waiting) + len(self._ends))
        return replace(self._ask(), begin=False, ahead=ahead, held=held, slot=self._slot, urgent_before=before)

    def _carry_out(self, exchange: "Exchange", ends: list[Ending], ask: ClaimRequest | None) -> None:
        """In a thread of its own."""
        keys = [ending.key for ending in ends]
        try:
            if ends:
                self.keeper.flush(keys)
                exchange.found = self._finish(ends, ask, alive=lambda: None)
            elif ask is not None:
                exchange.found = self._claim_more(ask)
        except Exception as error:  # noqa: BLE001  (it is raised again where somebody waits for it)
            exchange.error = error
        finally:
            self.keeper.release(keys)
            exchange.over = True
            self._over.set()
            if (child := self.warm.child) is not None:
                child.wake()

    def _claim_more(self, ask: ClaimRequest) -> Claimed:
        asked_at = self.clock.monotonic()
        try:
            return self.queue.claim(ask, timedelta(0)), asked_at
        except (StaleWrite, NotFound) as error:
            self.keeper.dismiss(str(error))
        except HerdsmanError as error:
            self._note_lost_answer()
            self.keeper.note_outage(error, asked_at)
        return (), asked_at

    def _collect(self) -> None:
        """What the exchange has brought."""
        exchange = self._exchange
        if exchange is None or not exchange.over:
            return
        self._exchange = None
        if exchange.error is not None:
            raise exchange.error
        claims, asked_at = exchange.found
        if not claims:
            return
        self.keeper.hold({claim.key: LogBook() for claim in claims}, asked_at)
        self._slot = (self._slot + len(claims)) % (SLOTS - 2 * MOST_AT_ONCE)
        groups = [Group([claim], asked_at, ahead=True) for claim in claims]
        if self._waiting and claims[0].place < self._waiting[0].claims[0].place and self._runner.recall(self.warm):
            self._waiting.extendleft(reversed(groups))  # more urgent than what waits here
        else:
            self._waiting.extend(groups)

    def _await_exchange(self) -> None:
        """The hands are free, and something is still under way."""
        while self._exchange is not None and not self._exchange.over:
            self._turn()
            self._over.wait(self.limits.poll.total_seconds())
        self._collect()

    def _expected(self) -> dict[str, float]:
        """How long jobs take of those types that may be taken ahead."""
        unfit = self.unfit()
        found = {kind: self._durations.of(kind) for kind, spec in self.warm.specs.items() if _one_by_one(spec)}
        return {kind: seconds for kind, seconds in found.items() if seconds is not None and kind not in unfit}

    def _wanted(self, now: float) -> dict[str, int]:
        """How many more jobs of each type are to be taken ahead."""
        most = min(self.prefetch.most, 1 if self.warm.max_jobs == 1 else MOST_AT_ONCE, max(1, self.warm.share))
        if most <= 1:
            return {}
        kinds = [group.claims[0].type for group in self._waiting]
        waiting = [self._durations.of(kind) or 0.0 for kind in kinds]
        prefetch = replace(self.prefetch, most=int(most))
        found = take_ahead(self._expected(), left=self._left(now), waiting=waiting, prefetch=prefetch)
        limits = {kind: (self.warm.specs[kind].prefetch or MOST_AT_ONCE) - 1 - kinds.count(kind) for kind in found}
        return {kind: min(count, limits[kind]) for kind, count in found.items() if limits[kind] > 0}

    def _say_brief(self, most_s: float) -> None:
        """Short jobs are said together."""
        now = self.clock.monotonic()
        if self._brief_done and now - self._brief_said_at >= most_s:
            self.say("1 job is done" if self._brief_done == 1 else f"{self._brief_done} jobs are done")
            self._brief_done, self._brief_said_at = 0, now

    def _finish(
        self, endings: list[Ending], then: ClaimRequest | None, alive: Callable[[], None] | None = None
    ) -> Claimed:
        """Reports until it is recorded, or the claims are known to be another's (J12): heartbeats go on meanwhile.

        Time alone takes no claim away: while the database is out of reach, nobody else can have got the job. So only
        the queue's own answer ends this, or an order to exit at once. `endings` is emptied when they have to wait.
        """
        kept: list[Callable[[], Ending]] = []
        pause, unsure = _FIRST_PAUSE, False
        with ExitStack() as files:
            while True:
                asked_at = self.clock.monotonic()
                now = [read() for read in kept] or endings
                try:
                    exchange = self.queue.finish(now, then)
                except (StaleWrite, NotFound) as error:
                    self.keeper.dismiss(str(error))
                    return (), 0.0
                except InvalidRequest as error:
                    claims, asked_at = self._finish_in_parts(now, then, error)
                    break
                except HerdsmanError as error:
                    self.keeper.note_outage(error, asked_at)
                    unsure, then = unsure or then is not None, None
                    (alive or self.alive)()
                    leaving = self._leaving()
                    hurried = leaving.at_once or leaving.unowned is not None
                    if hurried or self.keeper.heard.dismissed is not None:
                        for each in now:
                            self.say(f"the end of job {each.key.job_id} was not reported: it will run again ({error})")
                        claims = ()
                        break
                else:
                    self.keeper.note_connected(asked_at)
                    self._note_results(now, exchange.told)
                    # None of the very jobs whose end was refused and is reported anew.
                    ended = {ending.key for ending in now}
                    claims = [each for each in exchange.claims if each.key not in ended]
                    break
                del now
                kept = kept or [_parked(endings.pop(0), files) for _ in range(len(endings))]
                self.clock.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
        if unsure:
            self._note_lost_answer()
        return claims, asked_at

    def _finish_in_parts(self, endings: Sequence[Ending], then: ClaimRequest | None, error: InvalidRequest) -> Claimed:
        """All of it in one request was too much; one ending alone that is refused is the job's own fault."""
        if len(endings) > 1:
            half = len(endings) // 2
            self._finish(list(endings[:half]), None)
            return self._finish(list(endings[half:]), then)
        if (substitute := _substitute(endings[0], str(error))) is not None:
            return self._finish([substitute], then)
        self.say(f"the end of job {endings[0].key.job_id} was refused: {error}")
        return (), 0.0

    def _note_results(self, endings: Sequence[Ending], results: Sequence[FinishResult]) -> None:
        by_key = {ending.key: ending for ending in endings}
        again: list[Ending] = []
        for each in results:
            said = f"job {each.key.job_id}"
            match by_key.get(each.key):
                case None:
                    continue
                case ending if each.refused is not None and not each.stale:
                    if (substitute := _substitute(ending, each.refused)) is not None:
                        again.append(substitute)
                        continue
                    said = f"the end of {said} was refused: {each.refused}"
                case _ if each.stale:
                    said += f" was taken away before its end could be reported: {each.refused}"
                case Done(key) if key in self._brief:
                    self._brief_done += 1
                    self._say_brief(_BRIEFLY_S)
                    continue
                case Done():
                    said += f" is {each.status}"
                case GivenBack(_, why):
                    said += f" was given back ({why}): {each.status}"
                case Failed(_, failure):
                    last = failure.error.strip().splitlines()[-1:] or [""]
                    said += f" is {each.status} ({failure.kind}): {last[0][:200]}"
            self.say(said)
        self._brief.difference_update(by_key)
        if again:
            self._finish(again, None)

    def _sleep(self, duration: timedelta) -> None:
        """In short steps: a signal must not wait for the end of a long one."""
        until = self.clock.monotonic() + duration.total_seconds()
        while (left := until - self.clock.monotonic()) > _INSTANT_S and self._turn().since is None:
            self.clock.sleep(min(self.limits.poll, timedelta(seconds=left)))

    def _complain(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self.say(text)


def _one_by_one(spec: HandlerSpec) -> bool:
    """Whether jobs of the type may be taken ahead: batches are claimed as a whole."""
    return spec.batch == 1 and spec.prefetch != 1


def _parked(ending: Ending, files: ExitStack) -> Callable[[], Ending]:
    """Gives the ending back. A large result waits in a file without a name, of which nothing is left with this process."""
    if not isinstance(ending, Done) or len(text := json.dumps(ending.result)) <= _LARGE:
        return lambda: ending
    try:
        file = files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115
        file.write(text)
        file.flush()
    except OSError:  # the disk is full: memory will do
        return lambda: ending
    rest = replace(ending, result=None)

    def read() -> Ending:
        file.seek(0)
        return replace(rest, result=json.load(file))

    return read


def _substitute(ending: Ending, refused: str) -> Ending | None:
    if not isinstance(ending, Done):
        return None
    failure = Failure(kind=FailureClass.USER_ERROR, error=f"its result was refused: {refused}")
    return Failed(ending.key, failure)
