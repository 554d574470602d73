"""Claims jobs, has them run in a process of their own, and reports how they ended.

The supervisor never runs user code, so it can always send heartbeats, stop jobs and report.
"""

import json
import math
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from herdsman.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import ClaimRequest, Done, Ending, Failed, FinishResult, GivenBack
from herdsman.ports import Clock, SystemThreads, Threads, WorkQueue
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

Claimed = tuple[Sequence[Claim], float]
"""Claims, and when they were asked for."""


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
            leaving=self._leaving,
            calls=self._calls,
            say=self.say,
        )
        self._begun: OrderedDict[ClaimKey, None] = OrderedDict()

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
        while (ended := self._leaving().exit) is None:
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

    def _leaving(self) -> Leaving:
        self.alive()
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

    def _ask(self) -> ClaimRequest:
        """Only while the process is warm: the jobs begin with the claim. Without types where none can run now."""
        unfit = self.unfit()
        specs = {kind: spec for kind, spec in self.warm.specs.items() if kind not in unfit}
        return ClaimRequest(
            types=tuple(sorted(specs)),
            most={kind: spec.batch for kind, spec in specs.items() if spec.batch > 1},
            begin=True,
            models=self.warm.models.names,
        )

    def claim(self) -> Claimed:
        """Jobs to work on, if there are any."""
        ask, asked_at = self._ask(), self.clock.monotonic()
        try:
            if self.clock.monotonic() < self._unsure_until:
                # Nothing is at work here now. What we hold all the same began when it was given out, so its
                # token is used.
                if held := self.queue.held():
                    self.queue.finish([GivenBack(key, "the answer that brought it was lost") for key in held])
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
        """Runs them to their ends; then the claims that came back with the report of the last."""
        spec = self.warm.specs.get(claims[0].type)
        if spec is not None and spec.linger_ms and len(claims) < spec.batch:
            claims = self.fill_up(claims, spec)
        more: Claimed = (), asked_at
        groups: list[Sequence[Claim]] = []
        # Several types come only after a lost answer.
        for kind in dict.fromkeys(claim.type for claim in claims):
            same = [claim for claim in claims if claim.type == kind]
            size = self.warm.specs[kind].batch if kind in self.warm.specs else len(same)
            groups += [same[start : start + size] for start in range(0, len(same), size)]
        if len(groups) > 1:  # the later ones wait for the first, and are kept alive meanwhile
            self.keeper.hold({claim.key: LogBook() for claim in claims}, asked_at)
        for number, group in enumerate(groups, start=1):
            more = self._run(group, asked_at, last=number == len(groups))
        return more

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

    def _run(self, claims: Sequence[Claim], asked_at: float, *, last: bool) -> Claimed:
        """Runs a group of one type and reports it; with the last one the next claims are asked for."""
        again = [claim for claim in claims if claim.key in self._begun]
        new = [claim for claim in claims if claim.key not in self._begun]
        for claim in new:
            self._begun[claim.key] = None
            self.say(f"job {claim.key.job_id} claimed: {claim.type}, attempt {claim.attempt}")
        while len(self._begun) > _MOST_BEGUN:
            self._begun.popitem(last=False)
        spec = self.warm.specs.get(claims[0].type)
        given_back = {claim.key: "it was begun here before under this token" for claim in again}
        if spec is None:
            here = ", ".join(sorted(self.warm.specs))
            why = f"no handler for type {claims[0].type!r}; here are: {here}"
            given_back |= {claim.key: why for claim in new}
        if given_back:
            self.keeper.hold({key: LogBook() for key in given_back}, asked_at)
        ours: list[Ending] = [GivenBack(key, why) for key, why in given_back.items()]
        if spec is not None and new:
            found = self._runner.work(new, spec, self.warm, asked_at)
            for lost in [each for each in found if isinstance(each, Abandoned)]:
                self.say(f"job {lost.key.job_id} was abandoned: {lost.reason}")
            ours += [each for each in found if not isinstance(each, Abandoned)]
            del found  # results that wait on disk must not be held here as well
        try:
            if not ours:
                return (), 0.0
            self.keeper.flush([ending.key for ending in ours])
            # A worker that has something else to load takes no new job before it has.
            fit = self.warm.ready and not self.warm.is_behind(self.keeper.heard.load) and self.short() is None
            sure = self.clock.monotonic() >= self._unsure_until
            ask = self._ask() if last and fit and sure and self._leaving().exit is None else None
            return self._finish(ours, ask if ask is not None and ask.types else None)
        finally:
            self.keeper.release(claim.key for claim in claims)

    def _finish(self, endings: list[Ending], then: ClaimRequest | None) -> Claimed:
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
                case Done():
                    said += f" is {each.status}"
                case GivenBack(_, why):
                    said += f" was given back ({why}): {each.status}"
                case Failed(_, failure):
                    last = failure.error.strip().splitlines()[-1:] or [""]
                    said += f" is {each.status} ({failure.kind}): {last[0][:200]}"
            self.say(said)
        if again:
            self._finish(again, None)

    def _sleep(self, duration: timedelta) -> None:
        """In short steps: a signal must not wait for the end of a long one."""
        until = self.clock.monotonic() + duration.total_seconds()
        while (left := until - self.clock.monotonic()) > _INSTANT_S and self._leaving().since is None:
            self.clock.sleep(min(self.limits.poll, timedelta(seconds=left)))

    def _complain(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self.say(text)


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
