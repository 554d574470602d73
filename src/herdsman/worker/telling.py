"""Tells the queue how jobs ended, again and again until it is heard or the claims are given up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from herdsman.core.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.core.model import Claim, ClaimKey, Failure
from herdsman.core.retry import FailureClass
from herdsman.core.work import Ask, Done, Ending, Exchange, Failed, GivenBack, Told
from herdsman.ports import Clock, WorkQueue
from herdsman.worker.keeper import Keeper
from herdsman.worker.watch import Limits

_SHORTEST, _LONGEST = timedelta(milliseconds=100), timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What came back for endings."""

    claims: Sequence[Claim] = ()
    asked_at: float = 0.0
    resumed: bool = False
    """Claims that an earlier answer may have held."""
    unsure: bool = False
    """An answer was lost, and with it perhaps new claims: they must be asked for again."""


@dataclass(kw_only=True)
class Teller:
    queue: WorkQueue
    keeper: Keeper
    clock: Clock
    limits: Limits
    say: Callable[[str], None]

    def tell(self, endings: Sequence[Ending], then: Ask | None) -> News:
        """Say it until it is heard, as long as the claims are ours: the beats go on meanwhile."""
        pause, unsure = _SHORTEST, False
        while True:
            asked_at = self.clock.monotonic()
            try:
                exchange = self.queue.finish(endings, then)
            except (StaleWrite, NotFound) as error:
                self.keeper.dismiss(str(error))
                return News()
            except InvalidRequest as error:
                return self._in_parts(endings, then, error)
            except HerdsmanError as error:
                unsure = then is not None
                if self._given_up(endings, error):
                    return News(unsure=unsure)
            else:
                self._after(endings, exchange.told)
                return _news(exchange, endings, asked_at, resumed=then is not None and then.resume)
            then = None if then is None else replace(then, resume=True)
            self.clock.sleep(pause)
            pause = min(_LONGEST, pause * 2)

    def _in_parts(self, endings: Sequence[Ending], then: Ask | None, error: InvalidRequest) -> News:
        """All of it in one word was too much; one ending alone that is refused is the job's own fault."""
        if len(endings) == 1:
            substitute = _substitute(endings[0], str(error))
            if substitute is None:
                self.say(f"job {endings[0].key.job_id} has an end that was refused: {error}")
                return News()
            return self.tell([substitute], then)
        half = len(endings) // 2
        self.tell(endings[:half], None)
        return self.tell(endings[half:], then)

    def _given_up(self, endings: Sequence[Ending], error: HerdsmanError) -> bool:
        silence = self.clock.monotonic() - self.keeper.heard.accepted_at
        if silence < self.limits.self_fence.total_seconds():
            return False
        for ending in endings:
            self.say(f"job {ending.key.job_id} has an end that could not be told: {error}")
        return True

    def _after(self, endings: Sequence[Ending], told: Sequence[Told]) -> None:
        by_key = {ending.key: ending for ending in endings}
        again: list[Ending] = []
        for each in told:
            ending = by_key.get(each.key)
            if ending is None:
                continue
            if each.refused is None or each.stale:
                self.say(f"job {each.key.job_id} {_words(ending, each)}")
            elif (substitute := _substitute(ending, each.refused)) is not None:
                again.append(substitute)
            else:
                self.say(f"job {each.key.job_id} has an end that was refused: {each.refused}")
        if again:
            self.tell(again, None)


def _news(exchange: Exchange, endings: Sequence[Ending], asked_at: float, *, resumed: bool) -> News:
    """What is asked for again may hold the very jobs whose end was refused and is told anew."""
    ended: set[ClaimKey] = {ending.key for ending in endings}
    claims = [each for each in exchange.claims if each.key not in ended]
    return News(claims=claims, asked_at=asked_at, resumed=resumed)


def _substitute(ending: Ending, refused: str) -> Ending | None:
    if not isinstance(ending, Done):
        return None
    failure = Failure(kind=FailureClass.USER_ERROR, error=f"its result was refused: {refused}")
    return Failed(ending.key, failure)


def _words(ending: Ending, told: Told) -> str:
    if told.stale:
        return f"was taken away before its end could be told: {told.refused}"
    match ending:
        case Done():
            return f"is {told.state}"
        case GivenBack(_, why):
            return f"was given back ({why}): {told.state}"
        case Failed(_, failure):
            last = failure.error.strip().splitlines()[-1:] or [""]
            return f"is {told.state} ({failure.kind}): {last[0][:200]}"
