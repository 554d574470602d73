"""The order of many numbers, within little memory."""

from array import array
from collections.abc import Iterator, Sequence
from heapq import merge

PIECE = 500_000


def by_size(numbers: Sequence[float], piece: int = PIECE) -> "array[int]":
    """Their places, that of the smallest first; equal ones keep their order.

    Python's own sort would hold an object for each of them, and ten million of those are most of a gigabyte.
    """
    starts = range(0, len(numbers), piece)
    pieces = [_sorted(numbers, start, min(start + piece, len(numbers))) for start in starts]
    return array("q", (place for _, place in merge(*(_with_numbers(numbers, each) for each in pieces))))


def _sorted(numbers: Sequence[float], start: int, end: int) -> "array[int]":
    return array("q", sorted(range(start, end), key=numbers.__getitem__))


def _with_numbers(numbers: Sequence[float], places: "array[int]") -> Iterator[tuple[float, int]]:
    return ((numbers[each], each) for each in places)
