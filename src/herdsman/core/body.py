"""What a submitter may hand us, as JSON text that every database stores alike."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import cast

from herdsman.core.errors import InvalidRequest, TooLarge

MAX_DEPTH = 32

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def encode(value: object, *, what: str, limit: int) -> str:
    """JSON text for `value`, or an error that names the place in it that no database would keep."""
    for path, part in _walk(value, what):
        _check(path, part)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:  # an integer with thousands of digits
        raise InvalidRequest(f"{what} cannot be written as JSON: {error}") from error
    size = len(text.encode())
    if size > limit:
        raise TooLarge(
            f"{what} is {size:,} bytes, the limit is {limit:,}: store the data elsewhere and pass a reference"
        )
    return text


def clean(text: str, longest: int) -> str:
    """Text that somebody else wrote, as every database keeps it: what cannot be stored is replaced, not refused."""
    return text[:longest].replace("\0", "\ufffd").encode(errors="replace").decode()


def fingerprint(body: Mapping[str, object]) -> str:
    """The same for the same body, whatever the order of its keys."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), default=_plain)
    return sha256(text.encode()).hexdigest()


def _plain(value: object) -> str:
    """One instant is one text, whatever zone it was written in."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


def _walk(value: object, what: str) -> Iterator[tuple[str, object]]:
    """Every part of `value` with its path; by hand, since hostile nesting would exhaust the stack."""
    todo: list[tuple[str, object, int]] = [(what, value, 1)]
    while todo:
        path, part, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"{what} is nested deeper than {MAX_DEPTH} levels")
        yield path, part
        todo.extend((f"{path}{step}", inner, depth + 1) for step, inner in _inside(path, part))


def _inside(path: str, part: object) -> Iterator[tuple[str, object]]:
    if isinstance(part, dict):
        for key, inner in cast("dict[object, object]", part).items():
            if not isinstance(key, str):
                raise InvalidRequest(f"{path} has the key {key!r}: keys must be text")
            _check_text(path, key)
            yield f".{key}", inner
    elif isinstance(part, list | tuple):
        for index, inner in enumerate(cast("Sequence[object]", part)):
            yield f"[{index}]", inner


def _check(path: str, part: object) -> None:
    if isinstance(part, str):
        _check_text(path, part)
    elif isinstance(part, float):
        if not math.isfinite(part):
            raise InvalidRequest(f"{path} is {part}: JSON has no such number")
    elif not isinstance(part, bool | int | dict | list | tuple | None):
        raise InvalidRequest(f"{path} is a {type(part).__name__}: only JSON values can be stored")


def _check_text(path: str, text: str) -> None:
    if "\0" in text:
        raise InvalidRequest(f"{path} contains a NUL character, which PostgreSQL cannot store")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{path} contains half of a surrogate pair, which is not valid text") from error
