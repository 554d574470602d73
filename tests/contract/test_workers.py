"""Workers are written down before they exist, and move only as their state table says."""

from datetime import timedelta

import pytest

from herdsman import __version__
from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest, NotFound, StaleWrite
from herdsman.explain.why import why_worker
from herdsman.fleet import workers_sql
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.fleet.model import Worker
from herdsman.fleet.wire import WorkerOut
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.model import AuditEntry
from herdsman.states import WORKER, Reason, WorkerStatus
from tests.support.databases import NOON, MovingClock

W1 = WorkerId("w1")
WAYS = {
    WorkerStatus.SPAWNING: (),
    WorkerStatus.ACTIVE: (WorkerStatus.ACTIVE,),
    WorkerStatus.TERMINATING: (WorkerStatus.ACTIVE, WorkerStatus.TERMINATING),
    WorkerStatus.ERROR: (WorkerStatus.ERROR,),
    WorkerStatus.TERMINATED: (WorkerStatus.ERROR, WorkerStatus.TERMINATED),
}


def test_a_list_of_workers_is_narrowed_before_it_is_cut_into_pages(services: Services, clock: MovingClock) -> None:
    """What is asked for may be older than a whole page of others."""
    clock.stop(at=NOON)
    register_worker(services, WorkerId("old"), pool=PoolId("big"))
    for number in range(5):
        clock.advance(timedelta(seconds=1))
        register_worker(services, WorkerId(f"new-{number}"))
        move_worker(services, WorkerId(f"new-{number}"), WorkerStatus.ACTIVE, Reason.READY)
    read = services.database.read
    assert [each.id for each in read(lambda tx: workers_sql.page_workers(tx, pool=PoolId("big"), limit=2)).workers] == [
        "old"
    ]
    assert [
        each.id
        for each in read(lambda tx: workers_sql.page_workers(tx, states=[WorkerStatus.SPAWNING], limit=2)).workers
    ] == ["old"]
    active = read(lambda tx: workers_sql.page_workers(tx, states=[WorkerStatus.ACTIVE], limit=4))
    rest = read(lambda tx: workers_sql.page_workers(tx, states=[WorkerStatus.ACTIVE], limit=4, after=active.next))
    assert [each.id for each in (*active.workers, *rest.workers)] == [f"new-{4 - each}" for each in range(5)]


def test_a_worker_is_registered_with_what_is_known_of_it(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON)
    register_worker(services, W1, pool=PoolId("big"), instance_type="A100", metadata={"zone": "é", "tags": [1, None]})
    worker = found(services)
    assert (worker.pool, worker.instance_type) == ("big", "A100")
    assert worker.metadata == {"zone": "é", "tags": [1, None]}
    assert (worker.status, worker.reason) == (WorkerStatus.SPAWNING, Reason.REGISTERED)
    assert worker.created_at == worker.entered_state_at == NOON
    assert worker.last_heartbeat is None


def test_a_worker_s_name_is_its_own_for_ever(services: Services) -> None:
    register_worker(services, W1)
    with pytest.raises(Conflict, match="there is a worker 'w1' already"):
        register_worker(services, W1)
    register_worker(services, WorkerId("W1"))


@pytest.mark.parametrize("name", ["", " ", "a b", "../etc", "x" * 129, "a\0", "é"])
def test_a_worker_s_name_must_be_one(services: Services, name: str) -> None:
    with pytest.raises(InvalidRequest, match="worker_id"):
        register_worker(services, WorkerId(name))
    with pytest.raises(InvalidRequest, match="pool"):
        register_worker(services, W1, pool=PoolId(name))


@pytest.mark.parametrize("value", [float("nan"), "a\0b", "\ud800", object()], ids=["nan", "nul", "surrogate", "object"])
def test_metadata_that_no_database_would_keep_is_refused(services: Services, value: object) -> None:
    with pytest.raises(InvalidRequest, match="metadata"):
        register_worker(services, W1, metadata={"key": value})


def test_an_instance_type_must_fit(services: Services) -> None:
    with pytest.raises(InvalidRequest, match="instance_type"):
        register_worker(services, W1, instance_type="x" * 129)


@pytest.mark.parametrize("to", WorkerStatus)
@pytest.mark.parametrize("here", WorkerStatus)
def test_a_worker_moves_as_the_table_says_and_not_otherwise(
    services: Services, clock: MovingClock, here: WorkerStatus, to: WorkerStatus
) -> None:
    clock.stop(at=NOON)
    register_worker(services, W1)
    for step in WAYS[here]:
        move_worker(services, W1, step, Reason.READY)
    clock.advance(timedelta(seconds=5))
    if WORKER.allows(here, to):
        move_worker(services, W1, to, Reason.STOPPED, who="ann")
        assert found(services).entered_state_at == NOON + timedelta(seconds=5)
    else:
        with pytest.raises(StaleWrite, match=f"worker 'w1' is {here} and cannot become {to}"):
            move_worker(services, W1, to, Reason.STOPPED)
    assert found(services).status is (to if WORKER.allows(here, to) else here)


def test_an_unknown_worker_cannot_move(services: Services) -> None:
    with pytest.raises(NotFound, match="there is no worker 'w1'"):
        move_worker(services, W1, WorkerStatus.ACTIVE, Reason.READY)


def test_a1_every_step_of_a_worker_is_in_the_audit(services: Services) -> None:
    register_worker(services, W1)
    move_worker(services, W1, WorkerStatus.ACTIVE, Reason.READY)
    move_worker(services, W1, WorkerStatus.ERROR, Reason.LOST, who="ann")
    told = [(entry.seq, entry.from_status, entry.to_status, entry.reason, entry.actor) for entry in history(services)]
    assert told == [
        (1, None, "spawning", "registered", "leader"),
        (2, "spawning", "active", "ready", "leader"),
        (3, "active", "error", "lost", "ann"),
    ]


def found(services: Services) -> Worker:
    return services.database.read(lambda tx: workers_sql.get_worker(tx, W1))


def history(services: Services) -> list[AuditEntry]:
    return services.database.read(lambda tx: jobs_sql.job_history(tx, WORKER.kind, W1))


def test_a_worker_of_another_release_is_named_by_workers_and_why(services: Services) -> None:
    register_worker(services, W1, metadata={"kept": 1})
    services.database.transact(lambda tx: workers_sql.note_version(tx, W1, "99.1.0"))
    services.database.transact(lambda tx: workers_sql.note_version(tx, W1, "no version"))
    shown = WorkerOut.of(services.database.read(lambda tx: workers_sql.get_worker(tx, W1)))
    assert (shown.version, shown.metadata["kept"]) == ("99.1.0", 1)
    assert "it runs Herdsman 99.1.0" in (shown.warning or "")
    assert [each for each in why_worker(services, W1).because if "it runs Herdsman 99.1.0" in each]
    services.database.transact(lambda tx: workers_sql.note_version(tx, W1, __version__))
    assert WorkerOut.of(services.database.read(lambda tx: workers_sql.get_worker(tx, W1))).warning is None
