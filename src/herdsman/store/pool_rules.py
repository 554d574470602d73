"""A pool's own rules as one column, and back."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from herdsman.core.pools import PoolRules
from herdsman.core.schedule import Schedule, Sizes, Window


def write_rules(rules: PoolRules) -> dict[str, Any]:
    return {
        "min": rules.min_workers,
        "max": rules.max_workers,
        "warm_buffer": rules.warm_buffer,
        "idle_timeout_s": _seconds(rules.idle_timeout),
        "max_lifetime_s": _seconds(rules.max_lifetime),
        "schedule": [_write_window(each) for each in rules.schedule.windows],
        "outside": _write_sizes(rules.schedule.outside),
        "preload": list(rules.preload),
    }


def read_rules(row: Mapping[str, Any]) -> PoolRules:
    return PoolRules(
        min_workers=row.get("min", 0),
        max_workers=row.get("max"),
        warm_buffer=row.get("warm_buffer"),
        idle_timeout=_span(row.get("idle_timeout_s")),
        max_lifetime=_span(row.get("max_lifetime_s")),
        schedule=Schedule(
            windows=tuple(_read_window(each) for each in row.get("schedule", ())),
            outside=_read_sizes(row.get("outside", {"min": 0})),
        ),
        preload=tuple(row.get("preload", ())),
    )


def _write_window(window: Window) -> dict[str, Any]:
    return {
        "days": sorted(window.days),
        "begin": window.begin,
        "end": window.end,
        "zone": window.zone,
        **_write_sizes(window.sizes),
    }


def _read_window(row: Mapping[str, Any]) -> Window:
    return Window(
        days=frozenset(row["days"]),
        begin=row["begin"],
        end=row["end"],
        zone=row["zone"],
        sizes=_read_sizes(row),
    )


def _write_sizes(sizes: Sizes) -> dict[str, Any]:
    return {"min": sizes.least, "max": sizes.most}


def _read_sizes(row: Mapping[str, Any]) -> Sizes:
    return Sizes(least=row.get("min"), most=row.get("max"))


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
