"""A herd's recorded cycles, asked again: the same decisions word for word, on every database."""

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from sqlalchemy import text
from typer.testing import CliRunner

from herdsman.cli.main import app
from herdsman.context import Services
from herdsman.fleet import decide, history_sql
from herdsman.fleet.actions import Action, SpawnWorker
from herdsman.fleet.decide import Planned
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.phases.scale import scale_up
from herdsman.fleet.reconcile import Reconciler
from herdsman.fleet.scaling import OURS
from herdsman.fleet.snapshot import Snapshot
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.worker_commands import complete_job, start_job
from herdsman.testing.fakes.runpod import Fault
from herdsman.whatif.replay_cycles import Answered, ask_again, ask_under
from tests.support.builders import a_job, scalar, sql
from tests.support.control_loop import POLICY, FleetHarness
from tests.support.databases import every_database, one_database
from tests.support.worker_calls import claim_job

pytestmark = one_database

SECOND = timedelta(seconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def work(harness: FleetHarness) -> None:
    """Every worker that may takes a job, and ends the one that it had."""
    for pod in harness.fake.ledger.alive:
        worker = WorkerId(pod.name.rpartition("--")[2])
        claim = claim_job(harness.services, worker)
        if claim is not None:
            start_job(harness.services, claim.key)
            harness.moving.advance(SECOND)
            complete_job(harness.services, claim.key, {})


def a_day(harness: FleetHarness, replica: Reconciler) -> list[Snapshot]:
    """Growth, work, a provider that goes blind, a tick by hand, and a fleet that shrinks; what each cycle saw."""
    seen: list[Snapshot | None] = [harness.cycle(replica).seen]
    for number in range(40):
        a_job(harness.services, job_id=f"j{number}", type="image" if number % 2 else "video")
    for _ in range(6):
        seen.append(harness.cycle(replica).seen)
        work(harness)
    harness.fake.faults.turn_on(Fault.STORM_500, only=frozenset({"list"}))
    seen.append(harness.cycle(replica).seen)
    harness.fake.faults.turn_off(Fault.STORM_500)
    seen.append(replica.tick(lambda step: isinstance(step.action, SpawnWorker)).seen)
    seen += [harness.cycle(replica, later=timedelta(minutes=4)).seen for _ in range(6)]
    return [each for each in seen if each is not None]


def asked(services: Services) -> Answered:
    return ask_again(everything(services), OURS)


def everything(services: Services) -> Iterable[history_sql.RecordedSnapshot]:
    since = services.database.read(lambda tx: tx.now()) - timedelta(days=30)
    return history_sql.snapshots_since(services.database, since)


@pytest.mark.parametrize("scaling", ["threshold", "workload", "adaptive"])
def test_the_recorded_history_is_decided_alike(harness: FleetHarness, scaling: str) -> None:
    harness.with_policy(scaling=scaling)
    seen = a_day(harness, harness.replica())
    found = asked(harness.services)
    assert (found.first, found.left_out, found.cycles) == ([], 0, len(seen))
    assert found.decisions > 12


@every_database
def test_what_each_cycle_saw_is_read_back(harness: FleetHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pages, and with a whole one every now and then."""
    monkeypatch.setattr(history_sql, "MOST_FROM_ONE", 4)
    monkeypatch.setattr(history_sql, "SNAPSHOT_BATCH", 3)
    seen = a_day(harness, harness.replica())
    documents = [document for _, document in everything(harness.services)]
    nows = [(seen_.now - EPOCH) // timedelta(microseconds=1) for seen_ in seen]
    assert [document and document["seen"]["now"] for document in documents] == nows
    whole = scalar(harness.services.database, "SELECT COUNT(*) FROM orchestrator_sights WHERE base_id IS NULL")
    assert 3 <= whole < len(seen)


@every_database
def test_a_quiet_fleet_is_written_down_in_few_bytes(harness: FleetHarness) -> None:
    replica = harness.replica()
    for _ in range(20):
        harness.cycle(replica)
    sizes = harness.services.database.read(
        lambda tx: [row[0] for row in tx.execute(text("SELECT LENGTH(data) FROM orchestrator_sights"))]
    )
    assert sum(sizes[-10:]) / 10 < 400
    assert asked(harness.services).same


def test_another_leader_goes_on_where_the_first_ended(harness: FleetHarness) -> None:
    one, two = harness.replica("one"), harness.replica("two")
    harness.cycle(one)
    harness.cycle(one)
    one.leadership.resign()
    assert harness.cycle(two).seen is not None
    assert (asked(harness.services).cycles, asked(harness.services).same) == (3, True)


@every_database
def test_a_recorded_decision_that_was_changed_is_found(harness: FleetHarness) -> None:
    a_day(harness, harness.replica())
    database = harness.services.database
    first = database.read(lambda tx: history_sql.list_cycles(tx, lambda _: True, before=None, limit=500))[0][-1]
    told = {"steps": json.loads(json.dumps(first.steps))}
    told["steps"][0]["numbers"]["min"] += 1
    sql(
        database,
        "UPDATE orchestrator_cycles SET steps = :told WHERE id = :id",
        told=json.dumps(told),
        id=first.id,
    )
    found = asked(harness.services)
    assert (found.otherwise, [each.cycle for each in found.first]) == (1, [first.id])
    ((was, would),) = found.first[0].pairs
    assert was is not None and would is not None
    assert was["numbers"]["min"] == would["numbers"]["min"] + 1


def never(_: Snapshot) -> Iterable[Action]:
    return ()


def told_twice(seen: Snapshot) -> Iterable[Action]:
    return [action for action in scale_up(seen) for _ in range(2)]


@pytest.mark.parametrize("other", [("scale_up", told_twice), ("scale_up", never), ("growth", scale_up)])
def test_another_judgement_is_found(
    harness: FleetHarness, monkeypatch: pytest.MonkeyPatch, other: tuple[str, decide.Phase]
) -> None:
    """More, less, or the same under another name."""
    a_day(harness, harness.replica())
    assert asked(harness.services).same
    changed = tuple(other if name == "scale_up" else (name, phase) for name, phase in decide.PHASES)
    monkeypatch.setattr(decide, "PHASES", changed)
    assert asked(harness.services).otherwise > 0


@every_database
def test_what_is_damaged_or_of_another_version_is_left_out_and_said(harness: FleetHarness) -> None:
    replica = harness.replica()
    for _ in range(4):
        harness.cycle(replica)
    sql(
        harness.services.database,
        "UPDATE orchestrator_sights SET data = :data WHERE cycle_id = (SELECT MAX(id) FROM orchestrator_cycles)",
        data=b"no such thing",
    )
    found = asked(harness.services)
    assert (found.cycles, found.left_out, found.same) == (3, 1, False)
    assert "damaged" in found.why_left_out
    elsewhere = ask_again(everything(harness.services), {})
    assert "'threshold', which is not installed" in elsewhere.why_left_out


@every_database
def test_old_ones_go_but_not_what_later_ones_are_told_by(
    harness: FleetHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_sql, "MOST_FROM_ONE", 4)
    replica = harness.replica()
    for _ in range(12):
        harness.cycle(replica, later=timedelta(hours=1))
    database = harness.services.database
    gone = database.transact(lambda tx: history_sql.prune_snapshots(tx, tx.now() - timedelta(hours=4, minutes=1)))
    left = [document is not None for _, document in everything(harness.services)]
    assert gone > 0
    assert 4 <= len(left) <= 8
    assert all(left)
    assert asked(harness.services).same
    assert database.transact(lambda tx: history_sql.prune_snapshots(tx, tx.now() + timedelta(days=1))) == len(left)


def test_a_cycle_lets_go_of_what_is_too_old(harness: FleetHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_sql, "MOST_FROM_ONE", 0)
    replica = replace(harness.replica(), replayable_for=timedelta(hours=2, minutes=30))
    for _ in range(6):
        harness.cycle(replica, later=timedelta(hours=1))
    assert scalar(harness.services.database, "SELECT COUNT(*) FROM orchestrator_sights") == 3


@every_database
def test_nothing_is_written_where_that_is_off(harness: FleetHarness) -> None:
    harness.cycle(replace(harness.replica(), replayable_for=None))
    assert scalar(harness.services.database, "SELECT COUNT(*) FROM orchestrator_sights") == 0
    assert scalar(harness.services.database, "SELECT COUNT(*) FROM orchestrator_cycles") == 1


def test_another_policy_is_asked_about_each_cycle_as_it_was_seen(harness: FleetHarness) -> None:
    a_day(harness, harness.replica())
    same = ask_under(everything(harness.services), OURS, DEFAULT_POOL, POLICY)
    assert (same.otherwise, same.left_out) == (0, 0)
    small = ask_under(everything(harness.services), OURS, DEFAULT_POOL, FleetPolicy(max_workers=1, min_workers=0))
    assert small.otherwise > 0
    assert small.would["SpawnWorker"] < small.recorded["SpawnWorker"]
    blind = ask_under(everything(harness.services), OURS, DEFAULT_POOL, FleetPolicy(scaling="adaptive"))
    assert blind.cycles == 0
    assert "SHADOW_SCALING_POLICY" in blind.why_left_out


def test_a_policy_that_was_only_asked_then_is_asked_again_now(harness: FleetHarness) -> None:
    harness.with_policy(shadow="adaptive")
    a_day(harness, harness.replica())
    found = ask_under(everything(harness.services), OURS, DEFAULT_POOL, FleetPolicy(scaling="adaptive"))
    assert found.left_out == 0
    assert asked(harness.services).same


def typed(url: str, *words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["whatif", "--history", *words], env={"DATABASE_URL": url}, catch_exceptions=False)
    # The command has sent the log to a screen that is gone now.
    structlog.reset_defaults()
    return ran.exit_code, ran.output


@every_database
def test_a_history_is_replayed_and_asked_again_on_the_command_line(
    harness: FleetHarness, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = a_day(harness, harness.replica())
    code, said = typed(url, "--compare", "adaptive", "-o", "json")
    outcomes = json.loads(said)["outcomes"]
    assert (code, [each["name"] for each in outcomes]) == (0, ["threshold", "adaptive"])
    assert outcomes[0]["jobs"] == 40
    assert {each["class"]: each["jobs"] for each in outcomes[0]["by_class"]} == {"image": 20, "video": 20}

    code, said = typed(url, "--cycles")
    assert (code, said.splitlines()[-1].split(", ")[0]) == (0, f"{len(seen)} cycles")
    assert said.strip().endswith("decisions, all the same")

    code, said = typed(url, "--cycles", "--set", "MAX_ACTIVE_GPUS=1", "--set", "MIN_ACTIVE_GPUS=0")
    assert code == 0
    assert "recorded: scale_up: SpawnWorker default: DEMAND" in said
    assert "\n  threshold: nothing" in said

    monkeypatch.setattr(decide, "PHASES", decide.PHASES[:-3])
    code, said = typed(url, "--cycles")
    assert (code, "now: nothing" in said, "would be decided differently now" in said) == (1, True, True)
    code, said = typed(url, "--cycles", "-o", "json")
    assert (code, json.loads(said)["otherwise"] > 0) == (1, True)


def test_a_plan_of_nothing_is_a_plan(harness: FleetHarness) -> None:
    """A tick by hand of which nothing was wanted."""
    replica = harness.replica()
    replica.leadership.campaign()
    replica.tick(_never)
    found = asked(harness.services)
    assert (found.cycles, found.decisions, found.same) == (1, 2, True)


def _never(_: Planned) -> bool:
    return False
