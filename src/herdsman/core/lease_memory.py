"""Whose the memory is that is in use on a GPU: leases', its worker's, outsiders', or left behind by nobody."""

from dataclasses import dataclass
from datetime import datetime

from herdsman.core.leasing import LeasePolicy, Standing
from herdsman.core.model import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What somebody saw on a GPU."""

    at: datetime
    total_mb: int
    used_mb: int
    own_mb: int | None = 0
    """Memory of the worker that reports; None when it cannot tell its own from others'."""
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEnd:
    at: datetime
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What follows from a measurement."""

    outside_mb: int
    proven_at: datetime
    quarantine: str | None = None
    """Why the GPU must not be given out, though nobody holds it."""


def account(
    seen: Standing,
    found: Measurement,
    policy: LeasePolicy,
    *,
    reporter: WorkerId | None = None,
    last: LastEnd | None = None,
) -> Account:
    """Whose the memory is that was found in use. What is left of an ended lease is nobody's, and is waited for (L3)."""
    covered = _covered(seen, found, reporter)
    known = min(seen.gpu.outside_mb, found.used_mb)
    ended = last is not None and last.at >= seen.gpu.proven_at
    if not ended:
        # A holder may not have taken its memory yet, so while somebody holds the GPU what is known stays known.
        floor = known if seen.live and found.own_mb is not None else 0
        return Account(outside_mb=max(floor, found.used_mb - covered, 0), proven_at=found.at)
    assert last is not None
    left = found.used_mb - covered - known
    if found.at <= last.at:
        return Account(outside_mb=known, proven_at=seen.gpu.proven_at)
    if left <= policy.tolerance_mb:
        return Account(outside_mb=known, proven_at=found.at)
    if found.at - last.at <= policy.empty_within:
        return Account(outside_mb=known, proven_at=seen.gpu.proven_at)
    return Account(outside_mb=known, proven_at=seen.gpu.proven_at, quarantine=_left_behind(left, found, last))


def _covered(seen: Standing, found: Measurement, reporter: WorkerId | None) -> int:
    """The memory that leases and the reporting worker itself explain."""
    if found.own_mb is None:
        return found.used_mb
    leased = sum(each.memory_mb for each in seen.live)
    theirs = sum(each.memory_mb for each in seen.others(reporter))
    return theirs + max(leased - theirs, found.own_mb)


def _left_behind(left: int, found: Measurement, last: LastEnd) -> str:
    pids = ", ".join(map(str, found.pids[:8])) or "not named by the driver"
    return f"{left} MB are still in use after the lease of {last.agent[:80]} ended; processes: {pids}"[:255]
