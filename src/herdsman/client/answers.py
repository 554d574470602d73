"""An answer, read to its end, and what it means. Whatever is not Herdsman's is never taken for it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from herdsman import __version__
from herdsman.core.errors import HerdsmanError, TooMany, Unreachable
from herdsman.wire.problems import Problem, error_of

LONGEST_WAIT = timedelta(days=1)
_LONGEST_SAID = 120
_OURS = "urn:herdsman:"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    asked: str
    """The request, as a person would name it: method and URL."""
    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes = b""

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def retry_after(self) -> timedelta | None:
        """How long we are asked to wait; a date is left aside, for it depends on two clocks."""
        try:
            seconds = float(self.headers.get("retry-after", ""))
        except ValueError:
            return None
        if not math.isfinite(seconds) or seconds < 0:
            return None
        return min(timedelta(seconds=min(seconds, LONGEST_WAIT.total_seconds())), LONGEST_WAIT)

    def problem(self) -> Problem | None:
        """What Herdsman says is wrong; None when something else has answered."""
        try:
            found = Problem.model_validate_json(self.body)
        except ValidationError:
            return None
        return found if found.type.startswith(_OURS) else None


def refusal(answer: Answer) -> HerdsmanError:
    """The error that an answer stands for. A foreign 404 is no proof that something is gone."""
    found = answer.problem()
    if found is None:
        return foreign(answer)
    error = error_of(found)
    if isinstance(error, TooMany):
        return type(error)(str(error), retry_after=answer.retry_after, code=found.code)
    return error


def foreign(answer: Answer) -> Unreachable:
    where = answer.headers.get("location")
    led = f" leading to {_one_line(where)}" if where else ""
    kind = _one_line(answer.kind or "no content type")
    return Unreachable(
        f"{answer.asked} was answered with {answer.status} and {kind}{led}, which is not an answer of Herdsman "
        f"{__version__}: check the URL, what stands in between, and the version of the server"
    )


def body_of(kind: type[M]) -> Callable[[Answer], M]:
    """Reads one of our replies. One without any known field is a stranger's, though nothing in it is wrong."""

    def read(answer: Answer) -> M:
        try:
            found = kind.model_validate_json(answer.body)
        except ValidationError:
            raise foreign(answer) from None
        if not found.model_fields_set:
            raise foreign(answer)
        return found

    return read


def nothing(answer: Answer) -> None:
    """For a word whose success is all there is to know."""
    if answer.status != 204 and answer.kind != "application/json":
        raise foreign(answer)


def _one_line(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[: 2 * _LONGEST_SAID])
    return " ".join(printable.split())[:_LONGEST_SAID]
