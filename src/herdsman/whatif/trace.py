"""Traces: when jobs arrived and how long each held a GPU, read from a file."""

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from herdsman.errors import InvalidRequest

SORTED_AT_ONCE = 500_000


def by_size(numbers: Sequence[float], piece: int = SORTED_AT_ONCE) -> "array[int]":
    """Their places, that of the smallest first; equal ones keep their order.

    Python's own sort would hold an object for each of them, and ten million of those are most of a gigabyte.
    """
    starts = range(0, len(numbers), piece)
    pieces = [
        array("q", sorted(range(start, min(start + piece, len(numbers))), key=numbers.__getitem__)) for start in starts
    ]
    return array("q", merge(*pieces, key=numbers.__getitem__))


MOST_CLASSES = 1000
"""Of more classes than this the later ones are counted as one."""
OTHER_CLASSES = "(others)"
LONGEST_CLASS = 60


@dataclass(slots=True)
class Classes:
    """Filled in the order of the jobs."""

    names: list[str] = field(default_factory=list[str])
    of: "array[int]" = field(default_factory=lambda: array("H"))
    """By the job: the place of its class among the names."""
    _places: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, name: str) -> None:
        place = self._places.get(name)
        if place is None:
            known = name[:LONGEST_CLASS] if len(self.names) < MOST_CLASSES else OTHER_CLASSES
            if known not in self.names:
                self.names.append(known)
            place = self.names.index(known)
            if len(self._places) < 2 * MOST_CLASSES:
                self._places[name] = place
        self.of.append(place)

    def sorted(self, order: Sequence[int]) -> "Classes":
        return Classes(self.names, array("H", (self.of[each] for each in order)), self._places)


COLUMNS = ("arrival_s", "service_s")
CLASS = "class"
LONGEST_S = 10 * 366 * 86_400
"""A longer trace is taken for one whose times are not in seconds."""
MOST_ROWS = 12_000_000
"""With so many a replay still fits into a gigabyte."""
LONGEST_LINE = 1 << 20
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    arrival_s: "array[float]"
    """Seconds since the first one, in order."""
    service_s: "array[float]"
    said: tuple[str, ...] = ()
    """What a person should know about how it was read."""
    classes: Classes | None = None
    """None where jobs have no classes."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def work_s(self) -> float:
        return math.fsum(self.service_s)


def read_trace(path: Path) -> Trace:
    """A CSV with a heading, plain or with gzip, also from a pipe; columns that are not needed are left aside."""
    classes = Classes()
    try:
        with path.open("rb") as file:
            begins = file.peek(2)[:2]
            if begins in UTF_16:
                raise InvalidRequest(f"the trace {path} is no text in UTF-8 but in UTF-16: save it as UTF-8")
            plain = gzip.GzipFile(fileobj=file) if begins == b"\x1f\x8b" else file
            # What is no UTF-8 matters only where a number should be, and is reported with its line then.
            with TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline="") as text:
                return made(path.name, _rows(path, text, classes), classes)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRequest(f"the trace {path} cannot be read: {error}") from error


def made(name: str, rows: Iterable[tuple[float, float]], classes: Classes | None = None) -> Trace:
    """From pairs of arrival and service; put in order where they are not. `classes` are filled with the rows."""
    arrival, service = array("d"), array("d")
    for came, took in rows:
        arrival.append(came)
        service.append(took)
    if not arrival:
        raise InvalidRequest(f"the trace {name} has no jobs: give one with at least one row below its heading")
    kinds = classes if classes is not None and len(classes.of) == len(arrival) else None
    said: tuple[str, ...] = ()
    if any(later < earlier for earlier, later in zip(arrival, memoryview(arrival)[1:], strict=False)):
        order = by_size(arrival)
        arrival, service = (array("d", (column[each] for each in order)) for column in (arrival, service))
        kinds = None if kinds is None else kinds.sorted(order)
        said = ("the rows were not in the order of their arrival; they were sorted",)
    first, last = arrival[0], arrival[-1]
    if last - first > LONGEST_S:
        days = (last - first) / 86_400
        raise InvalidRequest(f"the trace {name} spans {days:,.0f} days: are its times really in seconds?")
    if first > 0:
        arrival = array("d", (each - first for each in arrival))
    return Trace(name, arrival, service, said, kinds)


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """None is longer than a line of numbers can be, so that a file without any is not read to its end."""
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise InvalidRequest(
                f"line {number} of the trace {path} is longer than {LONGEST_LINE:,} characters: it is no CSV"
            )
        yield line


def _rows(path: Path, file: IO[str], classes: Classes) -> Iterator[tuple[float, float]]:
    lines = csv.reader(_lines(path, file))
    count, add = 0, classes.add
    try:
        came, took, named = _places(path, next(lines, list[str]()))
        for cells in lines:
            if not cells:
                continue
            count += 1
            if count > MOST_ROWS:
                raise InvalidRequest(f"the trace {path} has more than {MOST_ROWS:,} rows: replay a part of it")
            try:
                arrival, service = float(cells[came]), float(cells[took])
                if named is not None:
                    add(cells[named])
            except (ValueError, IndexError):
                also = "" if named is None else " and a class"
                raise InvalidRequest(
                    f"line {lines.line_num} of the trace {path} must have a number for arrival_s and for service_s{also},"
                    f" but is: {_shown(cells)}"
                ) from None
            if not (0 <= service < LONGEST_S and 0 <= arrival < math.inf):
                wrong = f"times that cannot be: arrival_s {arrival:g}, service_s {service:g}"
                if service < 0:
                    wrong = f"a service_s of {service:g}: a job cannot take less than 0"
                elif arrival < 0:
                    wrong = f"an arrival_s of {arrival:g}: times begin at 0"
                raise InvalidRequest(f"line {lines.line_num} of the trace {path} has {wrong}")
            yield arrival, service
    except csv.Error as error:
        raise InvalidRequest(f"line {lines.line_num} of the trace {path} is no CSV: {error}") from error


def _places(path: Path, heading: Sequence[str]) -> tuple[int, int, int | None]:
    names = [each.strip().lower() for each in heading]
    missing = [each for each in COLUMNS if each not in names]
    if missing:
        found = _shown(heading) if heading else "nothing"
        raise InvalidRequest(
            f"the trace {path} has no column {' and no column '.join(missing)}: its first line must name"
            f" arrival_s and service_s (class is optional), and is: {found}"
        )
    return names.index(COLUMNS[0]), names.index(COLUMNS[1]), names.index(CLASS) if CLASS in names else None


def _shown(cells: Sequence[str]) -> str:
    """What a terminal would take for a command is spelled out."""
    text = ",".join(cells)[:100]
    return text if text.isprintable() else ascii(text)
