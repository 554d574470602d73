"""The policy: versions without a gap, nothing overwritten unseen, and every replica soon knows."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from herdsman.jobs import sql as jobs_sql
from herdsman.limits import sql as limits_sql
from herdsman.limits.commands import FRESH_S, PolicyBook, find_policy, policy_history, set_policy
from herdsman.limits.control_policy import ControlPolicy, check_policy, with_value
from herdsman.limits.wire import ChangeOut, PolicyDocument, stored, written
from herdsman.ports import SystemClock
from herdsman.testing.clocks import ManualClock
from tests.support.builders import scalar, sql
from tests.support.threads import at_once


def a_policy(**wanted: Any) -> PolicyDocument:
    return written(wanted)


def slow(rate: float) -> PolicyDocument:
    return a_policy(agents={"ann": {"rate_per_second": rate}})


def test_before_anybody_has_set_anything_nothing_is_limited(services: Services) -> None:
    found = find_policy(services)
    assert (found.version, found.policy.policy()) == (0, ControlPolicy())
    assert policy_history(services).versions == ()


def test_each_change_is_a_version_with_what_changed_who_and_why(services: Services) -> None:
    first = set_policy(services, slow(5), note="ann floods us", who="token:1")
    second = set_policy(services, slow(2))
    assert (first.version, second.version) == (1, 2)
    assert second.changes == (ChangeOut(path="agents.ann.rate_per_second", old=5.0, new=2.0),)
    assert find_policy(services).policy == slow(2)
    assert find_policy(services, 1).policy == slow(5)
    newest, oldest = policy_history(services).versions
    assert (newest.version, oldest.version) == (2, 1)
    assert (oldest.note, oldest.by) == ("ann floods us", "token:1")
    assert oldest.changes == (ChangeOut(path="agents.ann.rate_per_second", old=None, new=5.0),)


def test_the_same_policy_again_is_no_change(services: Services) -> None:
    set_policy(services, slow(5))
    assert set_policy(services, slow(5.0)).version == 1
    assert set_policy(services, PolicyDocument(), base_version=1).version == 2


def test_what_somebody_else_has_set_is_not_overwritten_unseen(services: Services) -> None:
    set_policy(services, slow(5), base_version=0)
    with pytest.raises(Conflict, match="at version 1 by now, not 0"):
        set_policy(services, slow(7), base_version=0)
    assert find_policy(services).policy == slow(5)


def test_a1_the_audit_has_one_row_for_each_version(services: Services) -> None:
    for rate in (1, 2, 3):
        set_policy(services, slow(rate), who="token:7", note=f"to {rate}")
    found = services.database.read(lambda tx: jobs_sql.job_history(tx, limits_sql.POLICY, limits_sql.POLICY))
    assert [(each.seq, each.event_type, each.actor) for each in found] == [
        (number, "policy.changed", "token:7") for number in (1, 2, 3)
    ]
    assert found[2].details["changes"] == [{"path": "agents.ann.rate_per_second", "old": 2.0, "new": 3.0}]


def test_many_who_change_it_at_once_leave_no_gap(services: Services) -> None:
    made = at_once(8, lambda number: set_policy(services, slow(number + 1)).version)
    assert sorted(made) == [*range(1, 9)]
    history = policy_history(services).versions
    assert [each.version for each in history] == [*range(8, 0, -1)]
    for newer, older in pairwise(history):
        (change,) = newer.changes
        assert change.old == older.policy.agents["ann"].rate_per_second


def test_a4_the_history_is_paged(services: Services) -> None:
    for rate in range(1, 6):
        set_policy(services, slow(rate))
    first = policy_history(services, limit=2)
    assert ([each.version for each in first.versions], first.next) == ([5, 4], 4)
    second = policy_history(services, after=first.next, limit=3)
    assert ([each.version for each in second.versions], second.next) == ([3, 2, 1], None)
    assert second.versions[-1].changes[0].old is None


def test_a_version_that_is_not_there_is_not_found(services: Services) -> None:
    with pytest.raises(NotFound, match="no version 3"):
        find_policy(services, 3)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a burst alone": ({"default": {"burst": 5}}, "no rate_per_second"),
    "marks the wrong way round": ({"gates": {"queue_high": 5, "queue_low": 5}}, "must be lower"),
    "a lower mark alone": ({"agents": {"a.b": {"resume_queued": 5}}}, "agents.a.b.resume_queued"),
    "ages the wrong way round": (
        {"gates": {"oldest_high_seconds": 5, "oldest_low_seconds": 9}},
        "must be lower",
    ),
    "memory the wrong way round": (
        {"default": {"max_leased_mb": 1, "resume_leased_mb": 2}},
        "must be lower",
    ),
    "a pool that leads to itself": ({"cheaper_pools": {"big": "big"}}, "no way out of itself"),
    "no rate": ({"default": {"rate_per_second": 0}}, "default.rate_per_second"),
    "a negative rate": ({"default": {"rate_per_second": -1}}, "default.rate_per_second"),
    "a huge rate": ({"default": {"rate_per_second": 1e300}}, "default.rate_per_second"),
    "no number": ({"default": {"rate_per_second": float("nan")}}, "default.rate_per_second"),
    "endless": ({"default": {"gpu_seconds_per_day": float("inf")}}, "finite"),
    "a yes for a number": ({"default": {"max_queued": True}}, "default.max_queued"),
    "a fraction of a job": ({"default": {"max_queued": 1.5}}, "default.max_queued"),
    "a huge count": ({"default": {"max_queued": 10**30}}, "default.max_queued"),
    "more than all memory": ({"gates": {"gpu_memory_high_pct": 101}}, "gates.gpu_memory_high_pct"),
    "a name with a slash": ({"agents": {"a/b": {}}}, "agents"),
    "an empty name": ({"agents": {"": {}}}, "agents"),
    "a name with NUL": ({"agents": {"a\0": {}}}, "agents"),
    "a word that is meant otherwise": (
        {"default": {"rate_per_sec": 5}},
        "there is no 'rate_per_sec' here: did you mean 'rate_per_second'",
    ),
    "an unknown word": ({"zzz": 5}, "there are default, agents, gates"),
    "no key can run": ({"concurrency": {"k": 0}}, "concurrency.k"),
    "a list": ({"agents": []}, "agents"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_policy_that_cannot_be_meant_is_refused_with_its_place(case: str) -> None:
    wanted, said = REFUSED[case]
    with pytest.raises(InvalidRequest, match=said):
        check_policy(written(wanted).policy())


def test_agents_and_pools_that_nobody_has_met_yet_may_be_limited(services: Services) -> None:
    wanted = a_policy(agents={"never-seen": {"max_queued": 0}}, cpu_pool="later", cheaper_pools={"one": "other"})
    assert set_policy(services, wanted).version == 1


def test_s7_words_of_a_newer_version_are_passed_over(services: Services) -> None:
    set_policy(services, slow(5))
    text = '{"default": {"later": 1}, "agents": {"ann": {"rate_per_second": 5, "soon": {}}}, "new": []}'
    sql(services.database, "UPDATE orchestrator_policies SET document = :text", text=text)
    assert find_policy(services).policy == slow(5)
    assert stored(text) == slow(5)


def test_a_replica_knows_at_once_what_was_set_here_and_soon_what_was_set_elsewhere(
    database: Database, services: Services
) -> None:
    clock = ManualClock()
    here = Services(database, services.policy, services.new_job_id, rules=PolicyBook(database, clock))
    assert here.rules().version == 0
    set_policy(here, slow(5))
    assert here.rules().version == 1
    set_policy(services, slow(6))
    assert here.rules().version == 1, "it does not ask at every turn"
    clock.advance(timedelta(seconds=FRESH_S))
    assert here.rules().limits_of("ann").rate_per_second == 6


def test_while_the_database_is_away_the_last_policy_holds(
    database: Database, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policy(services, slow(5))
    clock = ManualClock()
    book, unread = PolicyBook(database, clock), PolicyBook(database, SystemClock())
    assert book().version == 1

    def away(_work: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(database, "read", away)
    clock.advance(timedelta(seconds=FRESH_S))
    assert book().version == 1
    with pytest.raises(StoreUnavailable):
        unread()


def test_a_change_forgets_what_gates_remembered(services: Services) -> None:
    """Who raises a limit must not wait for the mark of the old one."""
    sql(
        services.database,
        "INSERT INTO admission_gates (name, closed_at) VALUES ('queued:ann', CURRENT_TIMESTAMP)",
    )
    set_policy(services, slow(5))
    assert scalar(services.database, "SELECT COUNT(*) FROM admission_gates") == 0


def test_a_path_leads_to_names_with_dots_in_them() -> None:
    document = with_value({}, "agents.a.b.burst", 3)
    assert document == {"agents": {"a.b": {"burst": 3}}}
    assert with_value(document, "agents.a.b", None) == {"agents": {}}
    assert with_value({}, "cheaper_pools.a.b", "c") == {"cheaper_pools": {"a.b": "c"}}
    assert with_value({"fair": True}, "fair", None) == {}
