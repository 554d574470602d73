"""Checks on GPU leases: memory is never granted twice, and numbers only rise."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from herdsman.leases.rules import Lease
from herdsman.testing.simulation.checks.audit import grouped, listed
from herdsman.testing.simulation.checks.history import History, LeaseRow, Use


def leases(history: History) -> Iterator[str]:
    """L1: memory is never given twice, exclusive is exclusive. L2: no old lease comes back, numbers rise."""
    for gpu, uses in grouped(history.uses, lambda use: use.gpu).items():
        yield from _together(gpu, uses, history.gpu_mb)
        yield from _numbers(gpu, uses)
    for each in history.uses:
        if each.ended > each.until:
            yield f"{each.token} went on for {each.ended - each.until:.3f} s after it had to stop"
        if each.late not in ("", "gone"):
            yield f"a late heartbeat of {each.token} was answered with {each.late}"
    owner: dict[tuple[str, int], str] = {}
    for row in history.rows:
        if isinstance(row, LeaseRow) and row.gpu is not None:
            first = owner.setdefault((row.gpu, row.seq), row.id)
            if first != row.id:
                yield f"{row.gpu} gave the number {row.seq} to the leases {first} and {row.id}"


def _together(gpu: str, uses: Sequence[Use], gpu_mb: Mapping[str, int]) -> Iterator[str]:
    live: dict[str, Use] = {}
    used_mb = alone = 0
    # Each twice, where it begins and where it ends; of one moment the ends come first, but not before its own begin.
    moments = [(each.began, 1, each) for each in uses]
    moments += [(each.ended, 0 if each.ended > each.began else 2, each) for each in uses]
    for _, order, each in sorted(moments, key=lambda moment: moment[:2]):
        begins = order == 1
        sign = 1 if begins else -1
        used_mb += sign * each.memory_mb
        alone += sign * each.exclusive
        if not begins:
            del live[each.token]
            continue
        live[each.token] = each
        if gpu in gpu_mb and used_mb > gpu_mb[gpu]:
            yield f"{gpu} had {used_mb} MB in use at {each.began:.3f}: {listed(sorted(live))}"
        if alone and len(live) > 1:
            yield f"{gpu} was shared at {each.began:.3f} though somebody held it alone: {listed(sorted(live))}"


def _numbers(gpu: str, uses: Sequence[Use]) -> Iterator[str]:
    """Who hears of his lease late may hear of a low number; who asks after the end of another may not."""
    seen: set[int] = set()
    for each in uses:
        if each.seq in seen:
            yield f"{gpu} gave the number {each.seq} twice, at {each.began:.3f} to {each.token}"
        seen.add(each.seq)
    ended = sorted(uses, key=lambda use: use.ended, reverse=True)
    highest = 0
    for each in sorted(uses, key=lambda use: use.asked):
        while ended and ended[-1].ended < each.asked:
            highest = max(highest, ended.pop().seq)
        if each.seq < highest:
            yield f"{gpu} gave {each.token} the number {each.seq} at {each.began:.3f}, after {highest} had ended"


def use_of(lease: Lease, *, began: float, ended: float, **known: Any) -> Use:
    return Use(
        token=lease.token,
        gpu=lease.gpu_uuid or "",
        seq=lease.seq,
        memory_mb=lease.memory_mb,
        exclusive=lease.exclusive,
        began=began,
        ended=ended,
        **known,
    )
