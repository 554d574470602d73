"""Claims jobs, has them run in a process of their own, and says what became of them.

The supervisor never runs user code, so it can always beat, stop and report.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from herdsman.errors import HerdsmanError, NotFound, StaleWrite
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import ClaimRequest, Ending, GivenBack
from herdsman.ports import Clock, SystemThreads, Threads, WorkQueue
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.heartbeat import Keeper
from herdsman.worker.job_run import Abandoned, AsyncCalls, JobRunner
from herdsman.worker.logs import LogBook
from herdsman.worker.reporter import Reporter
from herdsman.worker.stop_rules import DeadMan, Leaving, Limits

_INSTANT_S = 0.001
_MOST_BEGUN = 1_000
"""How many claims are remembered as begun."""


class ExitReason(Enum):
    """How a worker came to its end; the value is the exit status of its process."""

    DRAINED = 0
    UNOWNED = 3
    """The dead-man switch fell."""
    DISMISSED = 4
    BROKEN = 6
    """Its handlers cannot be used."""


@dataclass(frozen=True, slots=True)
class WorkerExit:
    how: ExitReason
    why: str


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
        self._calls = AsyncCalls(
            self.queue, self.clock, patience=self.limits.self_fence, threads=self.threads
        )
        self._runner = JobRunner(
            keeper=self.keeper,
            clock=self.clock,
            limits=self.limits,
            leaving=self._leaving,
            calls=self._calls,
            say=self.say,
        )
        self._reporter = Reporter(
            queue=self.queue, keeper=self.keeper, clock=self.clock, leaving=self._leaving, say=self.say
        )
        self._begun: OrderedDict[ClaimKey, None] = OrderedDict()

    def drain(self) -> None:
        """Finish the job at hand and leave; asked again, give it back and leave. Safe in a signal handler."""
        self._asked += 1

    def run(self) -> WorkerExit:
        """Until drained, or until there is a reason to end."""
        with self.keeper.beating():
            try:
                parted = self._serve()
            finally:
                self.warm.close()
                self._calls.close()
            if parted.how is ExitReason.BROKEN:
                self.keeper.beat()  # so that whoever started the machine learns why
            if parted.how is not ExitReason.DISMISSED:
                try:
                    self.queue.leave()
                except HerdsmanError as error:
                    self.say(f"nobody could be told of the leave: {error}")
        if parted.how is ExitReason.UNOWNED:
            self._end_instance()
        return parted

    def _serve(self) -> WorkerExit:
        while (parted := self._parting()) is None:
            self.warm.follow(self.keeper.heard.load)
            was_ready = self.warm.ready
            if not self.warm.get_ready(self.limits.look):
                continue
            if not was_ready:
                self.keeper.hurry()  # jobs may come from now on, and a swap waits for this word
            lacking = self.short()
            if lacking is not None or not self._ask().types:
                unfit = "; ".join(f"{kind}: {why}" for kind, why in sorted(self.unfit().items()))
                self._complain(f"no job is taken: {lacking or unfit}")
                self._sleep(self.pause)
                continue
            claims, asked_at = self.claim()
            while claims:
                claims, asked_at = self.work(claims, asked_at)
        return parted

    def _parting(self) -> WorkerExit | None:
        if (dismissed := self.keeper.heard.dismissed) is not None:
            return WorkerExit(ExitReason.DISMISSED, dismissed)
        if self.warm.fault is not None:
            return WorkerExit(ExitReason.BROKEN, self.warm.fault)
        leaving = self._leaving()
        if leaving.unowned is not None:
            return WorkerExit(ExitReason.UNOWNED, leaving.unowned)
        return None if leaving.since is None else WorkerExit(ExitReason.DRAINED, "drained")

    def _leaving(self) -> Leaving:
        self.alive()
        heard, now = self.keeper.heard, self.clock.monotonic()
        if self._leaving_since is None and (heard.drain or self._asked):
            self._leaving_since = now
            self.say("draining: no more jobs are taken")
        answered_at = max(heard.accepted_at, heard.answered_at)
        return Leaving(
            since=self._leaving_since,
            at_once=self._asked + heard.drain > 1,
            unowned=self.deadman.falls(now=now, began=self._began, answered_at=answered_at),
        )

    def _ask(self) -> ClaimRequest:
        """Only while the process is warm: the jobs begin with the claim. Without types where none can run now."""
        unfit = self.unfit()
        specs = {kind: spec for kind, spec in self.warm.specs.items() if kind not in unfit}
        return ClaimRequest(
            types=tuple(sorted(specs)),
            most={kind: spec.batch for kind, spec in specs.items() if spec.batch > 1},
            begin=True,
            models=self.warm.models.names(),
        )

    def claim(self) -> tuple[Sequence[Claim], float]:
        """Jobs to work on, if there are any, and when they were asked for."""
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
            self.keeper.note_standing(
                None
            )  # the next beat will say so, and the jobs should not be told of first
        elif self.clock.monotonic() - asked_at <= self._wait.total_seconds() / 2:
            self._sleep(self.pause)
        return claims, asked_at

    def _note_lost_answer(self) -> None:
        """The queue may have given us claims that we never heard of. Until then the request may still be carried out, so
        they are not looked for only once."""
        self._unsure_until = self.clock.monotonic() + self.limits.self_fence.total_seconds()

    def work(self, claims: Sequence[Claim], asked_at: float) -> tuple[Sequence[Claim], float]:
        """Runs them to their ends; then the claims that came back with the telling of the last."""
        claims = self.fill_up(claims)
        news: tuple[Sequence[Claim], float] = (), asked_at
        groups: list[Sequence[Claim]] = []
        for kind in dict.fromkeys(
            claim.type for claim in claims
        ):  # of several types only after a lost answer
            same = [claim for claim in claims if claim.type == kind]
            size = self.warm.specs[kind].batch if kind in self.warm.specs else len(same)
            groups += [same[start : start + size] for start in range(0, len(same), size)]
        if len(groups) > 1:  # the later ones wait for the first, and are kept alive meanwhile
            self.keeper.hold({claim.key: LogBook() for claim in claims}, asked_at)
        for number, group in enumerate(groups, start=1):
            news = self._tell(self._run(group, asked_at), last=number == len(groups))
        return news

    def fill_up(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """A batch that is not full waits a moment for the rest."""
        spec = self.warm.specs.get(claims[0].type)
        if spec is None or not spec.linger_ms or len(claims) >= spec.batch:
            return claims
        if self.warm.is_behind(self.keeper.heard.load):
            return claims
        more = ClaimRequest(
            types=(spec.type,),
            most={spec.type: spec.batch - len(claims)},
            beside=len(claims),
            begin=True,
            models=self.warm.models.names(),
        )
        try:
            found = self.queue.claim(more, timedelta(milliseconds=spec.linger_ms))
        except HerdsmanError as error:
            self._note_lost_answer()
            self._complain(f"a batch could not be filled up: {error}")
            return claims
        # A job that comes again was taken back from us meanwhile: only its newer claim counts.
        return [*{claim.key.job_id: claim for claim in (*claims, *found)}.values()]

    def _run(self, claims: Sequence[Claim], asked_at: float) -> list[Ending | Abandoned]:
        spec = self.warm.specs.get(claims[0].type)
        if again := [claim for claim in claims if claim.key in self._begun]:
            self.keeper.hold({claim.key: LogBook() for claim in again}, asked_at)
            given_back = [
                GivenBack(claim.key, "it was begun here before under this token") for claim in again
            ]
            new = [claim for claim in claims if claim.key not in self._begun]
            return [*given_back, *(self._run(new, asked_at) if new else ())]
        self._begun |= {claim.key: None for claim in claims}
        while len(self._begun) > _MOST_BEGUN:
            self._begun.popitem(last=False)
        for claim in claims:
            self.say(f"job {claim.key.job_id} claimed: {claim.type}, attempt {claim.attempt}")
        if spec is None:
            self.keeper.hold({claim.key: LogBook() for claim in claims}, asked_at)
            known = ", ".join(sorted(self.warm.specs))
            why = f"no handler for type {claims[0].type!r}; here are: {known}"
            return [GivenBack(claim.key, why) for claim in claims]
        return self._runner.work(claims, spec, self.warm, asked_at)

    def _tell(self, endings: Sequence[Ending | Abandoned], *, last: bool) -> tuple[Sequence[Claim], float]:
        keys = [ending.key for ending in endings]
        ours = [ending for ending in endings if not isinstance(ending, Abandoned)]
        for lost in [ending for ending in endings if isinstance(ending, Abandoned)]:
            self.say(f"job {lost.key.job_id} was abandoned: {lost.why}")
        del endings  # results that wait on disk must not be held here as well
        try:
            if not ours:
                return (), 0.0
            self.keeper.flush([ending.key for ending in ours])
            # One that has something else to load takes no new job before: this was the last with what is loaded now.
            fit = self.warm.ready and not self.warm.is_behind(self.keeper.heard.load) and self.short() is None
            sure = self.clock.monotonic() >= self._unsure_until
            ask = self._ask() if last and fit and sure and self._parting() is None else None
            news = self._reporter.tell(ours, ask if ask is not None and ask.types else None)
            if news.unsure:
                self._note_lost_answer()
            return news.claims, news.asked_at
        finally:
            self.keeper.let_go(keys)

    def _end_instance(self) -> None:
        if self.end_instance is None:
            return
        try:
            self.end_instance()
        except (HerdsmanError, OSError) as error:
            self.say(f"the provider could not be asked to end this machine: {error}")

    def _sleep(self, duration: timedelta) -> None:
        """In short steps: a signal must not wait for the end of a long one."""
        until = self.clock.monotonic() + duration.total_seconds()
        while (left := until - self.clock.monotonic()) > _INSTANT_S and self._leaving().since is None:
            self.clock.sleep(min(self.limits.look, timedelta(seconds=left)))

    def _complain(self, text: str) -> None:
        if not self._troubled:
            self._troubled = True
            self.say(text)
