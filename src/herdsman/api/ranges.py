"""Parts of a file, as browsers ask for them: one range, or the whole."""

import re
from dataclasses import dataclass
from http import HTTPStatus

from herdsman.api.errors import Refused

_ONE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Part:
    first: int
    length: int

    def header(self, size: int) -> str:
        return f"bytes {self.first}-{self.first + self.length - 1}/{size}"


def wanted_part(asked: str | None, size: int) -> Part | None:
    """None for the whole: a range that is not understood, or more than one, may be left aside."""
    found = _ONE.fullmatch(asked.strip()) if asked is not None else None
    if found is None or found[0] == "bytes=-":
        return None
    first, last = _bounds(found[1], found[2], size)
    if first > last:
        return None if found[1] and found[2] and int(found[1]) > int(found[2]) else _nothing(asked, size)
    return Part(first, last - first + 1)


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """`-5` means the last five."""
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1


def _nothing(asked: str | None, size: int) -> Part:
    raise Refused(
        HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        "no-such-range",
        f"the range {asked} was asked for, and the file has {size:,} bytes",
    )
