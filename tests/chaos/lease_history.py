"""What holders of leases did, in one time for all of them, and what may never be found in it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One holder used a GPU from when it heard of its lease to when it last knew that it had it."""

    token: str
    gpu: str
    seq: int
    memory_mb: int
    exclusive: bool
    began: float
    ended: float
    until: float
    """The last moment that it may have gone on: its end less the margin."""
    late: str = ""
    """What a heartbeat after that was answered with, where one was sent."""


def violations(uses: Sequence[Use], total_mb: int) -> list[str]:
    by_gpu: defaultdict[str, list[Use]] = defaultdict(list)
    for each in uses:
        by_gpu[each.gpu].append(each)
    found = [said for gpu, those in by_gpu.items() for said in _of_gpu(gpu, those, total_mb)]
    return [*found, *(said for each in uses for said in _of_one(each))]


def _of_one(use: Use) -> Iterator[str]:
    if use.ended > use.until:
        yield f"{use.token} went on for {use.ended - use.until:.3f} s after it had to stop"
    if use.late not in ("", "gone"):
        yield f"a late heartbeat of {use.token} was answered with {use.late}"


def _of_gpu(gpu: str, uses: Sequence[Use], total_mb: int) -> Iterator[str]:
    numbers = sorted(each.seq for each in uses)
    if len(set(numbers)) != len(numbers):
        yield f"{gpu} gave two leases one number"
    live: dict[str, Use] = {}
    for each in _in_order(uses):
        if each.token in live:
            del live[each.token]
            continue
        live[each.token] = each
        together = sum(other.memory_mb for other in live.values())
        if together > total_mb:
            yield f"{gpu} had {together} MB in use at {each.began:.3f}: {sorted(live)}"
        if len(live) > 1 and any(other.exclusive for other in live.values()):
            yield f"{gpu} was shared at {each.began:.3f} though somebody held it alone: {sorted(live)}"


def _in_order(uses: Iterable[Use]) -> Iterator[Use]:
    """Each twice, where it begins and where it ends; of one moment the ends come first."""
    moments = [(each.began, 1, each) for each in uses] + [(each.ended, 0, each) for each in uses]
    yield from (each for _, _, each in sorted(moments, key=lambda moment: moment[:2]))
