"""Tells the queue how jobs ended, until it is recorded or their claims are known to be another's (J12)."""

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import IO

from herdsman.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.jobs.model import Claim, Failure, FailureClass
from herdsman.jobs.protocol import ClaimRequest, Done, Ending, Failed, FinishResult, GivenBack
from herdsman.ports import Clock, WorkQueue
from herdsman.worker.heartbeat import Keeper
from herdsman.worker.stop_rules import Leaving

_SHORTEST, _LONGEST = timedelta(milliseconds=100), timedelta(seconds=2)
_LARGE = 1024 * 1024
"""Results above this wait on disk: an outage may be long, and a batch may have a hundred of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What came back for endings."""

    claims: Sequence[Claim] = ()
    asked_at: float = 0.0
    unsure: bool = False
    """An answer was lost, and with it perhaps new claims: they must be looked for."""


@dataclass(kw_only=True)
class Reporter:
    queue: WorkQueue
    keeper: Keeper
    clock: Clock
    leaving: Callable[[], Leaving]
    say: Callable[[str], None]

    def tell(self, endings: list[Ending], then: ClaimRequest | None) -> News:
        """Say it until it is heard: the beats go on meanwhile. `endings` is emptied when they have to wait.

        Time alone takes no claim away: while the database is out of reach, nobody else can have got the job. So only
        the queue's own word ends this, or an order to leave at once.
        """
        with ExitStack() as files:
            kept: list[_Kept] = []
            pause, unsure = _SHORTEST, False
            while True:
                asked_at = self.clock.monotonic()
                now = [each.ending() for each in kept] or endings
                try:
                    exchange = self.queue.finish(now, then)
                except (StaleWrite, NotFound) as error:
                    self.keeper.dismiss(str(error))
                    return News()
                except InvalidRequest as error:
                    return replace(self._in_parts(now, then, error), unsure=unsure)
                except HerdsmanError as error:
                    self.keeper.note_outage(error, asked_at)
                    unsure, then = unsure or then is not None, None
                    leaving = self.leaving()
                    hurried = leaving.at_once or leaving.unowned is not None
                    if hurried or self.keeper.heard.dismissed is not None:
                        for ending in now:
                            self.say(
                                f"job {ending.key.job_id} has ended, and nobody could be told:"
                                f" it will run again ({error})"
                            )
                        return News(unsure=unsure)
                else:
                    self.keeper.note_connected(asked_at)
                    self._after(now, exchange.told)
                    # None of the very jobs whose end was refused and is told anew.
                    ended = {ending.key for ending in now}
                    claims = [each for each in exchange.claims if each.key not in ended]
                    return News(claims=claims, asked_at=asked_at, unsure=unsure)
                del now
                kept = kept or [_Kept(endings.pop(0), files) for _ in range(len(endings))]
                self.clock.sleep(pause)
                pause = min(_LONGEST, pause * 2)

    def _in_parts(self, endings: Sequence[Ending], then: ClaimRequest | None, error: InvalidRequest) -> News:
        """All of it in one word was too much; one ending alone that is refused is the job's own fault."""
        if len(endings) == 1:
            substitute = _substitute(endings[0], str(error))
            if substitute is None:
                self.say(f"job {endings[0].key.job_id} has an end that was refused: {error}")
                return News()
            return self.tell([substitute], then)
        half = len(endings) // 2
        self.tell(list(endings[:half]), None)
        return self.tell(list(endings[half:]), then)

    def _after(self, endings: Sequence[Ending], told: Sequence[FinishResult]) -> None:
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


class _Kept:
    """An end that could not be told yet. Its file has no name: nothing is left of it when this process ends."""

    def __init__(self, ending: Ending, files: ExitStack) -> None:
        self._ending = ending
        self._file: IO[str] | None = None
        if isinstance(ending, Done) and len(text := json.dumps(ending.result)) > _LARGE:
            try:
                file = files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))  # noqa: SIM115
                file.write(text)
                file.flush()
            except OSError:  # the disk is full: memory will do
                return
            self._file, self._ending = file, replace(ending, result=None)

    def ending(self) -> Ending:
        if self._file is None or not isinstance(self._ending, Done):
            return self._ending
        self._file.seek(0)
        return replace(self._ending, result=json.load(self._file))


def _substitute(ending: Ending, refused: str) -> Ending | None:
    if not isinstance(ending, Done):
        return None
    failure = Failure(kind=FailureClass.USER_ERROR, error=f"its result was refused: {refused}")
    return Failed(ending.key, failure)


def _words(ending: Ending, told: FinishResult) -> str:
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
