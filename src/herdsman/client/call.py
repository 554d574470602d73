"""One request to the server: what is sent, and how the answer is read. A stranger's answer is never taken for ours."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from herdsman import __version__
from herdsman.errors import HerdsmanError, InvalidRequest, TooMany, Unreachable
from herdsman.ids import check_name
from herdsman.json_text import count_parts
from herdsman.wire import Problem, error_of

LONGEST_WAIT = timedelta(days=1)
_LONGEST_SHOWN = 120
_OURS = "urn:herdsman:"

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
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
        """How long the server asks us to wait; a date is ignored, for it depends on two clocks."""
        try:
            seconds = float(self.headers.get("retry-after", ""))
        except ValueError:
            return None
        if not math.isfinite(seconds) or seconds < 0:
            return None
        return timedelta(seconds=min(seconds, LONGEST_WAIT.total_seconds()))

    def problem(self) -> Problem | None:
        """What Herdsman says is wrong; None when something else has answered."""
        try:
            found = Problem.model_validate_json(self.body)
        except ValidationError:
            return None
        return found if found.type.startswith(_OURS) else None

    def read(self, model: type[M]) -> M:
        """The body as one of our replies. One without any known field is a stranger's, though nothing is wrong in it."""
        try:
            found = model.model_validate_json(self.body)
        except ValidationError:
            raise foreign(self) from None
        if not found.model_fields_set:
            raise foreign(self)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    method: str
    path: str
    read: Callable[[Answer], T_co]
    params: Mapping[str, object] = field(default_factory=dict[str, object])
    """None is left out; a tuple is sent once for each of its values."""
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait: timedelta = timedelta(0)
    """How long the server may hold the answer back, on top of the usual timeout."""
    also: frozenset[int] = frozenset()
    """Statuses that are no failure here; `read` knows them."""


def get(path: str, reply: type[M], **params: object) -> Call[M]:
    return Call(method="GET", path=path, read=lambda answer: answer.read(reply), params=params)


def post(path: str, reply: type[M], body: BaseModel | None = None, *, wait: timedelta = timedelta(0)) -> Call[M]:
    content = b"{}" if body is None else encoded(body)
    return Call(method="POST", path=path, read=lambda answer: answer.read(reply), body=content, wait=wait)


def nothing(answer: Answer) -> None:
    """For a request whose success is all there is to know."""
    if answer.status != 204 and answer.kind != "application/json":
        raise foreign(answer)


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


def built(make: Callable[[], M]) -> M:
    """A body of a request; what the server would refuse is refused here, by its field."""
    try:
        return make()
    except ValidationError as error:
        shown = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InvalidRequest(f"the request cannot be sent as it is: {shown}") from None


def encoded(body: BaseModel) -> bytes:
    # What is left at its default is not sent, so that an older server is not asked for what it does not know.
    return body.model_dump_json(exclude_defaults=True, by_alias=True).encode()


def batches(items: Iterable[tuple[T, int]], *, most: int, largest: int) -> Iterator[list[T]]:
    """Items with their weights, in their order: at most `most` in a request, which weighs at most `largest`."""
    batch: list[T] = []
    total = 0
    for item, size in items:
        if batch and (len(batch) == most or total + size > largest):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def onward(following: str, before: str | None) -> str:
    """Where the next page begins."""
    if following == before:
        raise Unreachable(f"the server's pages do not end: {following!r} follows upon itself")
    return following


def weight(body: bytes) -> int:
    """Its size or, where it is made of many small values, what it costs the server to read it."""
    return max(len(body), 2 * count_parts(body, what="the request", most=sys.maxsize))


def named(what: str, value: str) -> str:
    """An id as a part of a path. One that is a path itself would make the call mean something else."""
    check_name(what, value, 128)
    return quote(value, safe="")


def _one_line(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[: 2 * _LONGEST_SHOWN])
    return " ".join(printable.split())[:_LONGEST_SHOWN]
