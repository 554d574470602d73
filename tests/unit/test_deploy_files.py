"""What stands ready for KEDA, Prometheus and Grafana speaks of metrics that there are."""

import importlib
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from herdsman.telemetry import metric_families as metrics
from herdsman.telemetry.metric_families import Metrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OURS = re.compile(r"\b(?:herdsman|gpu_orchestrator)_[a-z_]+\b(?!-)")
SUFFIXES = ("", "_total", "_bucket", "_sum", "_count")
# It comes with other tools of this checkout: nothing of ours needs it.
yaml: Any = importlib.import_module("yaml")


def known() -> set[str]:
    """All names that a replica may show, as Prometheus stores them."""
    described: list[Any] = [each for each in vars(metrics).values() if isinstance(each, tuple)]
    looked_up = {str(each[0]) for each in described}
    counted = {family.name for family in Metrics().registry.collect()}
    return {f"{name}{suffix}" for name in looked_up | counted for suffix in SUFFIXES}


def read(name: str) -> Any:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def queries(found: Any) -> Iterator[str]:
    """Everything that Prometheus would be asked, and every metric that is named."""
    match found:
        case {"expr": str(query)} | {"query": str(query), "serverAddress": _} | {"metric": {"name": str(query)}}:
            yield query
        case dict():
            yield from chain.from_iterable(map(queries, found.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
        case list():
            yield from chain.from_iterable(map(queries, found))  # pyright: ignore[reportUnknownArgumentType]
        case _:
            pass


FILES = sorted(str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file())


def test_all_of_it_is_looked_at() -> None:
    assert FILES == [
        "grafana/herdsman.json",
        "keda/hpa.yaml",
        "keda/scaledobject.yaml",
        "prometheus/rules.yaml",
    ]


@pytest.mark.parametrize("name", FILES)
def test_every_metric_that_is_asked_for_is_there(name: str) -> None:
    asked = list(queries(read(name)))
    assert asked
    for query in asked:
        named = set(OURS.findall(query))
        assert named or 'up{job="herdsman"}' in query, f"{query} asks for nothing of ours"
        assert named <= known(), f"{query} asks for {named - known()}"


@pytest.mark.parametrize("name", FILES)
def test_every_query_is_whole(name: str) -> None:
    for query in queries(read(name)):
        for opening, closing in ("()", "[]", "{}"):
            assert query.count(opening) == query.count(closing), query


def test_every_alert_says_what_to_do() -> None:
    (group,) = read("prometheus/rules.yaml")["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert (ROOT / rule["annotations"]["runbook"]).is_file(), rule["alert"]


def test_workers_are_scaled_by_the_rule_that_the_page_names() -> None:
    """Up when depth > 100 or mean latency > 2 s, down when the depth is low and the GPUs are idle."""
    spec = read("keda/scaledobject.yaml")["spec"]
    rule = spec["advanced"]["scalingModifiers"]["formula"]
    assert {each["name"] for each in spec["triggers"]} == set(re.findall(r"[a-z]+", rule))

    def factor(depth: float, latency: float, used: float) -> float:
        """KEDA multiplies the number of workers by it."""
        return 2 if depth > 100 or latency > 2 else 0.5 if depth < 10 and used < 10 else 1

    assert rule == "(depth > 100 || latency > 2) ? 2 : ((depth < 10 && used < 10) ? 0.5 : 1)"
    assert [factor(101, 0, 0), factor(0, 2.1, 0), factor(9, 0, 9), factor(9, 0, 50), factor(50, 1, 5)] == [
        2, 2, 0.5, 1, 1,
    ]  # fmt: skip


def test_the_dashboard_has_no_two_panels_in_one_place() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in read("grafana/herdsman.json")["panels"]]
    assert len(set(places)) == len(places)
