"""What a submitter may hand us, as JSON text that every database stores and every language reads alike."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NoReturn, cast

from herdsman.errors import InvalidRequest, TooLarge

MAX_DEPTH = 32
ROOM_AROUND = 8
"""Levels that the fields around a payload may add to it."""
LARGEST_INTEGER = 2**53 - 1
"""JavaScript, jq and others read what lies beyond as another number."""
MOST_PARTS = 600_000
"""As `count_parts` counts. A parser in C lets no other thread work meanwhile, so that this bounds a wait for all."""
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
_Place = tuple["_Place | None", str | int]
"""Where something stands, as its parent and the last step: made into text only when there is something to say."""
_CONTAINERS = (dict, list, tuple)
_LONGEST_STEP = 64
_SLICE = 262_144
_FIELD_PARTS = 4
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_HALF = re.compile("[\ud800-\udfff]")
_NO_MARKS = bytes(set(range(256)) - set(b"[]{},:"))
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def encode(value: object, *, what: str, limit: int) -> str:
    """JSON text for `value`, or an error that names the place in it that no database would keep."""
    todo: list[tuple[_Place, object, int]] = []
    if isinstance(value, _CONTAINERS):
        todo.append(((None, what), cast("object", value), 1))
    else:
        _check_value(None, what, value)
    containers = 0
    while todo:  # a stack of its own, since hostile nesting would exhaust that of the program
        place, part, depth = todo.pop()
        containers += 1
        if containers > MOST_PARTS:  # a few lists that hold each other many times are endless as text
            raise _too_many(what, MOST_PARTS)
        keyed = isinstance(part, dict)
        inside = cast("Any", part).items() if keyed else enumerate(cast("Any", part))
        for step, inner in cast("Iterable[tuple[Any, object]]", inside):
            if keyed:
                if not isinstance(step, str):
                    raise InvalidRequest(f"{_path(place)} has the key {step!r}: keys must be text")
                _check_value(*place, step)
            if depth == MAX_DEPTH:
                raise InvalidRequest(f"{what} is nested deeper than {MAX_DEPTH} levels")
            if isinstance(inner, _CONTAINERS):
                todo.append(((place, step), cast("object", inner), depth + 1))
            else:
                _check_value(place, step, inner)
    try:
        text = _ENCODER.encode(value)
    except ValueError as error:
        raise InvalidRequest(f"{what} cannot be written as JSON: {error}") from error
    written = text.encode()
    if len(written) > limit:
        raise TooLarge(
            f"{what} is {len(written):,} bytes, the limit is {limit:,}: store the data elsewhere and pass a reference"
        )
    if _may_be_too_much(written):
        count_parts(written, what=what)
    return text


def decode(body: bytes, *, what: str, most: int = MOST_PARTS) -> Any:
    """The value of JSON text from outside. What another language would read as something else is refused."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{what} is not UTF-8: byte {error.start} begins no character") from error
    if _may_be_too_much(body):
        count_parts(body, what=what, most=most)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        said = f"{what} is not JSON: {error.msg}, at line {error.lineno} column {error.colno}"
        raise InvalidRequest(said) from error
    except _Refused as error:
        raise InvalidRequest(f"{what} {error}") from error


def _may_be_too_much(body: bytes) -> bool:
    """What is short and opens few brackets need not be counted: it has neither too many parts nor too many levels."""
    return len(body) * _FIELD_PARTS > MOST_PARTS or body.count(b"[") + body.count(b"{") > MAX_DEPTH + ROOM_AROUND


def count_parts(body: bytes, *, what: str, most: int = MOST_PARTS) -> int:
    """Commas, colons and brackets outside of texts; a field counts for more, since it costs more.

    Linear, and a slice at a time, so that other threads go on. `InvalidRequest` where there are more than `most`, more
    than `MOST_PARTS` without an object between them, or too many levels.
    """
    start = total = run = level = 0
    in_text = False
    while start < len(body):
        piece = body[start : start + _SLICE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape stays in one piece
            piece = body[start : start + _SLICE + 1]
        start += len(piece)
        between = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(between[in_text::2])
        in_text ^= len(between) % 2 == 0
        deepest = level
        for bracket in outside.translate(None, _NO_BRACKETS):
            level += _STEPS[bracket]
            deepest = max(deepest, level)
        if deepest > MAX_DEPTH + ROOM_AROUND:
            raise InvalidRequest(f"{what} is nested deeper than {MAX_DEPTH} levels")
        runs = [
            (len(each) + (_FIELD_PARTS - 1) * each.count(b":"))
            for each in outside.translate(None, _NO_MARKS).split(b"{")
        ]
        total += sum(runs) + len(runs) - 1
        if run + runs[0] > MOST_PARTS or max(runs) > MOST_PARTS or total > most:
            raise _too_many(what, min(most, MOST_PARTS))
        run = runs[-1] + (run if len(runs) == 1 else 0)
    return total


def clean(text: str, longest: int) -> str:
    """Text that somebody else wrote, as every database keeps it: what cannot be stored is replaced, not refused."""
    return text[:longest].replace("\0", "\ufffd").encode(errors="replace").decode()


def fingerprint(body: Mapping[str, object]) -> str:
    """The same for the same body, whatever the order of its keys."""
    return sha256(_SORTED_ENCODER.encode(body).encode()).hexdigest()


class _Refused(Exception):
    """Raised out of the parser; what it says follows the name of what was parsed."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise _Refused(f"has the key {twice[:_LONGEST_STEP]!r} twice in one object: which one counts?")
    return found


def _number(digits: str) -> float:
    found = float(digits)
    if digits.lstrip("-").isdecimal():
        if abs(found) > LARGEST_INTEGER:
            raise _Refused(_beyond(digits))
        return int(digits)
    if math.isinf(found):
        raise _Refused(f"contains {digits[:_LONGEST_STEP]}, which is larger than any number of 64 bits")
    return found


def _no_number(name: str) -> NoReturn:
    raise _Refused(f"contains {name}: JSON has no such number")


def _beyond(digits: str) -> str:
    shown = digits if len(digits) <= _LONGEST_STEP else f"{digits[:20]}... with {len(digits):,} digits"
    return f"contains the integer {shown}: beyond {LARGEST_INTEGER} not every language reads it alike; send it as text"


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _as_text(value: object) -> str:
    """One instant is one text, whatever zone it was written in."""
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)


_SORTED_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_text)
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_no_number
)


def _too_many(what: str, most: int) -> InvalidRequest:
    return InvalidRequest(
        f"{what} is made of too many values: {most:,} commas, colons and brackets are taken;"
        " store the data elsewhere and pass a reference, or send fewer jobs at once"
    )


def _check_value(parent: _Place | None, step: str | int, value: object) -> None:
    """A value that holds no other, or a key."""
    if isinstance(value, str):
        if "\0" in value:
            wrong = "contains a NUL character, which PostgreSQL cannot store"
        elif not value.isascii() and _HALF.search(value):
            wrong = "contains half of a surrogate pair, which is not valid text"
        else:
            return
    elif value is None or (isinstance(value, float) and math.isfinite(value)):
        return
    elif isinstance(value, float):
        wrong = f"is {value}: JSON has no such number"
    elif isinstance(value, int):
        if abs(value) <= LARGEST_INTEGER:
            return
        wrong = _beyond(hex(value) if abs(value) >> 256 else str(value))
    else:
        wrong = f"is a {type(value).__name__}: only JSON values can be stored"
    raise InvalidRequest(f"{_path((parent, step))} {wrong}")


def _path(place: _Place) -> str:
    steps: list[str] = []
    at: _Place | None = place
    while at is not None:
        parent, step = at
        short = str(step)[:_LONGEST_STEP]
        steps.append(f"[{short}]" if isinstance(step, int) else short if parent is None else f".{short}")
        at = parent
    return "".join(reversed(steps))
