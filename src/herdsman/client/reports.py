"""What a worker reports, in requests that the server takes. One result that cannot be sent holds up no other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from herdsman.client.call import weight
from herdsman.core.body import encode
from herdsman.core.errors import InvalidRequest
from herdsman.core.saved import check_saved
from herdsman.core.work import Done, Ending, Failed, Told

LARGEST_REPORT = 8 * 1024 * 1024
"""Half of what the server takes at once, so that there is room for the rest of the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    sent: Sequence[Sequence[Ending]]
    refused: Sequence[Told]


def split(endings: Sequence[Ending]) -> Parts:
    fit: list[tuple[Ending, int]] = []
    refused: list[Told] = []
    for ending in endings:
        try:
            fit.append((ending, _size(ending)))
        except InvalidRequest as error:
            refused.append(Told(key=ending.key, refused=str(error)))
    return Parts(sent=list(_parts(fit)), refused=refused)


def _size(ending: Ending) -> int:
    match ending:
        case Done():
            check_saved(ending.saved)
            return weight(encode(ending.result, what="result", limit=LARGEST_REPORT).encode())
        case Failed():
            return len(ending.failure.error)
        case _:
            return len(ending.why)


def _parts(fit: Sequence[tuple[Ending, int]]) -> Iterator[list[Ending]]:
    part: list[Ending] = []
    total = 0
    for ending, size in fit:
        if part and total + size > LARGEST_REPORT:
            yield part
            part, total = [], 0
        part.append(ending)
        total += size
    if part:
        yield part
