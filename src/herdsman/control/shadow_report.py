"""What a shadow policy would have done, read from recorded cycles, and summed up over many."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from herdsman.control.services import Services
from herdsman.db.connection import Tx
from herdsman.store import cycles
from herdsman.store.cycles import Told
from herdsman.wire.fleet import ShadowOut, ShadowPoolOut, ShadowReportOut, ShadowThenOut

MOST_READ = 20_000
"""Cycles that are summed up at most: a week of one each half minute."""
LAST = 20
LONGEST = timedelta(minutes=5)
"""What a cycle saw is taken to hold until the next one, but no longer than this: nobody may have led meanwhile."""

Document = Mapping[str, Any]


def shown(summary: Mapping[str, Any]) -> tuple[ShadowOut, ...]:
    """Of a recorded cycle, what differed or could not be told."""
    return tuple(ShadowOut.model_validate(each) for each in _noted(summary) if _speaks(each))


def report(services: Services, hours: int) -> ShadowReportOut:
    return services.database.read(lambda tx: _report(tx, hours))


def _noted(summary: Mapping[str, Any]) -> Sequence[Document]:
    return summary.get("shadow", ())


def _speaks(noted: Document) -> bool:
    return bool(noted["differs"] or noted.get("error"))


@dataclass
class _Sum:
    """Of one pool under one shadow."""

    cycles: int = 0
    differed: int = 0
    failed: int = 0
    more_s: float = 0.0
    less_s: float = 0.0

    def add(self, noted: Document, held: timedelta) -> None:
        self.cycles += 1
        self.failed += bool(noted.get("error"))
        if noted["differs"]:
            self.differed += 1
            extra = (noted["shadow"]["workers"] - noted["live"]["workers"]) * held.total_seconds()
            self.more_s += max(0.0, extra)
            self.less_s += max(0.0, -extra)


@dataclass
class _Sums:
    cycles: int = 0
    differed: int = 0
    failed: int = 0
    since: datetime | None = None
    pools: dict[tuple[str, str], _Sum] = field(default_factory=dict[tuple[str, str], _Sum])
    last: list[ShadowThenOut] = field(default_factory=list[ShadowThenOut])

    def add(self, told: Told, held: timedelta) -> None:
        noted = _noted(told.summary)
        if not noted:
            return
        self.cycles, self.since = self.cycles + 1, told.at
        self.differed += any(each["differs"] for each in noted)
        self.failed += any(each.get("error") for each in noted)
        for each in noted:
            self.pools.setdefault((each["pool"], each["policy"]), _Sum()).add(each, held)
        room = LAST - len(self.last)
        self.last += [ShadowThenOut(cycle=told.id, at=told.at, **each) for each in noted if _speaks(each)][
            :room
        ]


def _report(tx: Tx, hours: int) -> ShadowReportOut:
    sums, read = _Sums(), 0
    for told, held in _held(cycles.told_since(tx, tx.now() - timedelta(hours=hours), MOST_READ), tx.now()):
        read += 1
        sums.add(told, held)
    return ShadowReportOut(
        hours=hours,
        since=sums.since,
        cycles=sums.cycles,
        differed=sums.differed,
        failed=sums.failed,
        pools=tuple(_pool_out(*named, each) for named, each in sorted(sums.pools.items())),
        last=tuple(sums.last),
        truncated=read == MOST_READ,
    )


def _held(told: Iterable[Told], now: datetime) -> Iterator[tuple[Told, timedelta]]:
    """Each with how long it held, from the newest on."""
    following = now
    for each in told:
        yield each, min(LONGEST, max(timedelta(0), following - each.at))
        following = each.at


def _pool_out(pool: str, policy: str, found: _Sum) -> ShadowPoolOut:
    return ShadowPoolOut(
        pool=pool,
        policy=policy,
        cycles=found.cycles,
        differed=found.differed,
        failed=found.failed,
        worker_hours_more=round(found.more_s / 3600, 4),
        worker_hours_less=round(found.less_s / 3600, 4),
    )
