"""Metrics in the text format of Prometheus."""

from collections.abc import Iterable, Mapping


def ready_metric(*, ready: bool) -> str:
    return _family("wink_health_ready", "gauge", "1 when every loop runs and beats", [("", float(ready))])


def age_metric(ages: Mapping[str, float]) -> str:
    rows = [(_label(name), age) for name, age in ages.items()]
    return _family("wink_heartbeat_age_seconds", "gauge", "Seconds since the loop last beat", rows)


def stalls_metric(stalls: Mapping[str, int]) -> str:
    rows = [(_label(name), float(count)) for name, count in stalls.items()]
    return _family("wink_watchdog_stalls_total", "counter", "How often the loop stood still", rows)


def _family(name: str, kind: str, meaning: str, rows: Iterable[tuple[str, float]]) -> str:
    samples = "".join(f"{name}{labels} {value:g}\n" for labels, value in rows)
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n{samples}"


def _label(loop: str) -> str:
    escaped = loop.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{loop="{escaped}"}}'
