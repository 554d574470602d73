"""One thing that can be asked of the server: what is sent, and how the answer is read."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from herdsman.client.answers import Answer, foreign, refusal
from herdsman.core.body import count_parts
from herdsman.core.errors import InvalidRequest
from herdsman.core.request import check_name

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T_co]):
    method: str
    path: str
    read: Callable[[Answer], T_co]
    params: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait: timedelta = timedelta(0)
    """How long the server may hold the answer back, on top of the usual timeout."""
    also: frozenset[int] = frozenset()
    """Statuses that are no failure here; `read` knows them."""


def understood(call: Call[T], answer: Answer) -> T:
    if answer.status not in call.also:
        if answer.status >= 400:
            raise refusal(answer)
        if not 200 <= answer.status < 300:
            raise foreign(answer)
    return call.read(answer)


def get(
    path: str,
    read: Callable[[Answer], T],
    params: Mapping[str, object] | None = None,
    *,
    also: frozenset[int] = frozenset(),
) -> Call[T]:
    return Call(method="GET", path=path, read=read, params=given(params or {}), also=also)


def post(path: str, read: Callable[[Answer], T], body: BaseModel | None = None) -> Call[T]:
    return Call(method="POST", path=path, read=read, body=b"{}" if body is None else encoded(body))


def built(make: Callable[[], R]) -> R:
    """A body of a request; what the server would refuse is refused here, by its field."""
    try:
        return make()
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise InvalidRequest(f"the request cannot be sent as it is: {said}") from None


def encoded(body: BaseModel) -> bytes:
    # What is left at its default is not sent, so that an older server is not asked for what it does not know.
    return body.model_dump_json(exclude_defaults=True).encode()


def weight(body: bytes) -> int:
    """Its size or, where it is made of many small values, what it costs the server to read it."""
    return max(len(body), 2 * count_parts(body, what="the request", most=sys.maxsize))


def given(params: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The parameters that were given; one with many values is sent once for each."""
    pairs: list[tuple[str, str]] = []
    for name, value in params.items():
        if isinstance(value, tuple):
            pairs.extend((name, str(each)) for each in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif value is not None:
            pairs.append((name, str(value)))
    return tuple(pairs)


def named(what: str, value: str) -> str:
    """An id as a part of a path. One that is a path itself would make the call mean something else."""
    check_name(what, value, 128)
    return quote(value, safe="")
