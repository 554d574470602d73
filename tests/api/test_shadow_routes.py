"""A shadow policy over HTTP and in the metrics: what it would have done, and how often."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.scaling import OURS, Load, Wanted
from herdsman.fleet.wire import CycleOut, ShadowReportOut
from herdsman.loops.loop_group import LoopHealth
from tests.api.calling import Client
from tests.api.conftest import Build, Tokens
from tests.api.test_metrics import scrape
from tests.support.apps import an_app
from tests.support.control_loop import FleetHarness, a_harness
from tests.support.databases import MovingClock


def greedy(_load: Load, policy: FleetPolicy) -> Wanted:
    return Wanted(policy.max_workers, policy.max_workers, {}, "a shadow wants all")


@dataclass(frozen=True)
class Control:
    reconciler: Reconciler
    loops: LoopHealth = field(default_factory=LoopHealth)

    @property
    def leadership(self) -> Leadership:
        return self.reconciler.leadership


@pytest.fixture
def harness(services: Services, clock: MovingClock) -> Iterator[FleetHarness]:
    with a_harness(services, clock) as harness:
        harness.with_policy(min_workers=1, shadow="greedy")
        yield harness


@pytest.fixture
def replica(harness: FleetHarness) -> Reconciler:
    found = harness.replica()
    observer = replace(found.observer, scaling={**OURS, "greedy": greedy})
    return replace(found, observer=observer)


@pytest.fixture
def leading(build: Build, replica: Reconciler) -> Iterator[Client]:
    with Client(an_app(build(control=Control(replica)))) as client:
        yield client


def got(client: Client, path: str, who: dict[str, str], **given: Any) -> Any:
    answer = client.get(path, headers=who, **given)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_decisions_carry_where_the_shadow_differed(
    leading: Client, tokens: Tokens, harness: FleetHarness, replica: Reconciler
) -> None:
    viewer = tokens.header(Role.VIEWER)
    empty = ShadowReportOut.model_validate(got(leading, "/decisions/shadow", viewer))
    assert (empty.since, empty.cycles, empty.pools, empty.last) == (None, 0, (), ())
    for _ in range(2):
        harness.cycle(replica)
    rows = got(leading, "/decisions", viewer)["cycles"]
    assert [row["shadow"][0]["shadow"]["spawns"] for row in rows] == [9, 10]
    assert rows[0]["shadow"][0]["live"]["reason"].startswith("changes nothing")
    assert got(leading, f"/decisions/{rows[0]['cycle']}", viewer)["shadow"] == rows[0]["shadow"]
    assert got(leading, "/decisions", viewer, params={"only": "shadow"})["cycles"] == rows
    told = ShadowReportOut.model_validate(got(leading, "/decisions/shadow", viewer))
    assert (told.hours, told.cycles, told.differed) == (24, 2, 2)
    assert told.last[0].cycle == rows[0]["cycle"]
    for bad in ("0", "745", "x"):
        assert leading.get("/decisions/shadow", headers=viewer, params={"hours": bad}).status_code == 422


def test_a_cycle_by_hand_answers_with_it(leading: Client, tokens: Tokens, replica: Reconciler) -> None:
    replica.leadership.campaign()
    answer = leading.post("/control/cycle", headers=tokens.header(Role.OPERATOR))
    (told,) = CycleOut.model_validate(answer.json()).shadow
    assert (told.policy, told.differs) == ("greedy", True)


def test_cycles_in_which_it_differed_are_counted(
    leading: Client, tokens: Tokens, harness: FleetHarness, replica: Reconciler
) -> None:
    scraper = tokens.header(Role.METRICS)
    for _ in range(3):
        harness.cycle(replica)
    assert scrape(leading, scraper)["herdsman_shadow_cycles_total", ("differs",)] == 3
