"""Demand as a file: when jobs came and how long each held a GPU."""

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from herdsman.core.errors import InvalidRequest

COLUMNS = ("arrival_s", "service_s")
LONGEST_S = 10 * 366 * 86_400
"""A longer trace is taken for one whose times are not in seconds."""
MOST_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    arrival_s: "array[float]"
    """Seconds since the first one, in order."""
    service_s: "array[float]"
    said: tuple[str, ...] = ()
    """What a person should know about how it was read."""

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def work_s(self) -> float:
        return math.fsum(self.service_s)


def read_trace(path: Path) -> Trace:
    """A CSV with a heading, plain or with gzip; columns that are not needed are left aside."""
    try:
        with _opened(path) as file:
            return made(path.name, _rows(path, csv.reader(file)))
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRequest(f"the trace {path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the trace {path} is no text in UTF-8: give a CSV file, or one with gzip"
        ) from error
    except csv.Error as error:
        raise InvalidRequest(f"the trace {path} is no CSV: {error}") from error


def made(name: str, rows: Iterable[tuple[float, float]]) -> Trace:
    """From pairs of arrival and service; put in order where they are not."""
    arrival, service = array("d"), array("d")
    for came, took in rows:
        arrival.append(came)
        service.append(took)
    if not arrival:
        raise InvalidRequest(
            f"the trace {name} has no jobs: give one with at least one row below its heading"
        )
    said: tuple[str, ...] = ()
    if any(later < earlier for earlier, later in zip(arrival, memoryview(arrival)[1:], strict=False)):
        arrival, service = _sorted(arrival, service)
        said = ("the rows were not in the order of their arrival; they were sorted",)
    return _from_zero(name, arrival, service, said)


def _opened(path: Path) -> IO[str]:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    if zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open("r", encoding="utf-8-sig", newline="")


def _rows(path: Path, lines: Iterator[list[str]]) -> Iterator[tuple[float, float]]:
    heading: list[str] = next(lines, list[str]())
    came, took = _places(path, heading)
    count = 0
    for number, cells in enumerate(lines, start=2):
        if not cells:
            continue
        count += 1
        if count > MOST_ROWS:
            raise InvalidRequest(f"the trace {path} has more than {MOST_ROWS:,} rows: replay a part of it")
        try:
            arrival, service = float(cells[came]), float(cells[took])
        except (ValueError, IndexError):
            raise InvalidRequest(_no_numbers(path, number, cells)) from None
        if not (0 <= service < LONGEST_S and math.isfinite(arrival)):
            raise InvalidRequest(_wrong(path, number, arrival, service))
        yield arrival, service


def _places(path: Path, heading: Sequence[str]) -> tuple[int, int]:
    names = [each.strip().lower() for each in heading]
    missing = [each for each in COLUMNS if each not in names]
    if missing:
        found = ", ".join(heading)[:100] or "nothing"
        raise InvalidRequest(
            f"the trace {path} has no column {' and no column '.join(missing)}: its first line must name"
            f" arrival_s and service_s (class is optional), and is: {found}"
        )
    return names.index(COLUMNS[0]), names.index(COLUMNS[1])


def _no_numbers(path: Path, number: int, cells: Sequence[str]) -> str:
    return (
        f"line {number} of the trace {path} must have a number for arrival_s and for service_s,"
        f" but is: {','.join(cells)[:100]}"
    )


def _wrong(path: Path, number: int, arrival: float, service: float) -> str:
    if service < 0:
        return (
            f"line {number} of the trace {path} has a service_s of {service:g}: a job cannot take less than 0"
        )
    return f"line {number} of the trace {path} has times that cannot be: arrival_s {arrival:g}, service_s {service:g}"


def _sorted(arrival: "array[float]", service: "array[float]") -> "tuple[array[float], array[float]]":
    order = sorted(range(len(arrival)), key=arrival.__getitem__)
    return array("d", (arrival[each] for each in order)), array("d", (service[each] for each in order))


def _from_zero(name: str, arrival: "array[float]", service: "array[float]", said: tuple[str, ...]) -> Trace:
    first, last = arrival[0], arrival[-1]
    if first < 0:
        raise InvalidRequest(f"the trace {name} has an arrival_s of {first:g}: times begin at 0")
    if last - first > LONGEST_S:
        days = (last - first) / 86_400
        raise InvalidRequest(f"the trace {name} spans {days:,.0f} days: are its times really in seconds?")
    if first > 0:
        arrival = array("d", (each - first for each in arrival))
    return Trace(name, arrival, service, said)
