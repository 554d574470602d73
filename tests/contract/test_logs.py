"""What attempts wrote and left behind, and the one list of everything that happened."""

from datetime import UTC, datetime

import pytest

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import InvalidRequest, NotFound, StaleWrite, TooLarge
from herdsman.fleet.workers_sql import register_worker
from herdsman.ids import DEFAULT_POOL, JobId, WorkerId
from herdsman.jobs.attempts_sql import MOST_BYTES, MOST_LINES
from herdsman.jobs.commands import (
    find_job,
    get_checkpoint,
    last_event,
    put_checkpoint,
    read_events,
    read_logs,
)
from herdsman.jobs.model import Claim
from herdsman.jobs.protocol import LogLines, WorkerHeartbeat
from herdsman.jobs.worker_commands import fail_job, record_heartbeat, release_job
from tests.support.builders import HOPELESS, a_claim, a_job, a_worker
from tests.support.databases import MovingClock
from tests.support.worker_calls import claim_job


def write(services: Services, claim: Claim, first: int, *lines: str) -> None:
    sent = LogLines(first=first, lines=lines)
    record_heartbeat(services, claim.worker_id, WorkerHeartbeat(keys=(claim.key,), logs={claim.key: sent}))


def lines(services: Services, job_id: JobId, since: str | None = None) -> list[str]:
    return [line for piece in read_logs(services, job_id, since=since).pieces for line in piece.lines]


def test_lines_are_kept_in_order_and_once(services: Services) -> None:
    claim = a_claim(services)
    write(services, claim, 0, "one", "two")
    write(services, claim, 0, "one", "two", "three")  # the answer was lost, and a line came in between
    write(services, claim, 3, "fo\0ur", "f\ud800nf")
    assert lines(services, claim.key.job_id) == ["one", "two", "three", "fo\ufffdur", "f?nf"]


def test_a_reader_gets_what_came_later(services: Services) -> None:
    claim = a_claim(services)
    write(services, claim, 0, "one")
    page = read_logs(services, claim.key.job_id)
    assert not page.ended
    write(services, claim, 1, "two")
    assert lines(services, claim.key.job_id, page.next) == ["two"]


def test_each_attempt_has_its_own_log_and_the_end_is_told(services: Services) -> None:
    first = a_claim(services)
    write(services, first, 0, "first try")
    release_job(services, first.key, "drained")
    second = claim_job(services, first.worker_id)
    assert second is not None
    write(services, second, 0, "second try")
    fail_job(services, second.key, HOPELESS)
    page = read_logs(services, first.key.job_id)
    assert [(piece.claim_token, piece.lines) for piece in page.pieces] == [
        (1, ("first try",)),
        (2, ("second try",)),
    ]
    assert page.ended


def test_a_log_has_an_end(services: Services) -> None:
    claim = a_claim(services)
    write(services, claim, 0, *["x"] * (MOST_LINES + 5))
    write(services, claim, MOST_LINES + 5, "more")
    found = lines(services, claim.key.job_id)
    assert len(found) == MOST_LINES
    assert found[-1].startswith("... the log of this attempt ends here")


def test_a_log_may_not_be_too_large(services: Services) -> None:
    claim = a_claim(services)
    for number in range(3):
        write(services, claim, number, "y" * (MOST_BYTES // 2))
    found = lines(services, claim.key.job_id)
    assert sum(len(line) for line in found) < MOST_BYTES + 200
    assert found[-1].startswith("... the log")


def test_a_stranger_writes_nothing(services: Services) -> None:
    claim = a_claim(services)
    thief = a_worker(services, "thief")
    sent = LogLines(first=0, lines=("lies",))
    record_heartbeat(services, thief, WorkerHeartbeat(keys=(claim.key,), logs={claim.key: sent}))
    assert lines(services, claim.key.job_id) == []


def test_a_wrong_place_to_read_from_is_named(services: Services) -> None:
    job_id = a_job(services)
    for wrong in ("x", "1", "1.x", "-1.0", "9" * 50):
        with pytest.raises(InvalidRequest, match="since"):
            read_logs(services, job_id, since=wrong)
    with pytest.raises(NotFound):
        read_logs(services, JobId("nothing"))


def test_a_checkpoint_outlives_the_attempt(services: Services) -> None:
    first = a_claim(services)
    assert get_checkpoint(services, first.key) is None
    put_checkpoint(services, first.key, {"step": 1})
    put_checkpoint(services, first.key, {"step": 2})
    release_job(services, first.key, "drained")
    second = claim_job(services, first.worker_id)
    assert second is not None
    assert get_checkpoint(services, second.key, worker=second.worker_id) == {"step": 2}
    with pytest.raises(StaleWrite):
        put_checkpoint(services, first.key, {"step": 3})
    with pytest.raises(StaleWrite):
        get_checkpoint(services, second.key, worker=a_worker(services, "thief"))
    with pytest.raises(TooLarge):
        put_checkpoint(services, second.key, "x" * 2_000_000)


def test_events_are_read_in_order_without_passing_over_one_under_way(services: Services, clock: MovingClock) -> None:
    clock.stop(at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    a_job(services)
    start = last_event(services)
    job_id = a_job(services)
    database = services.database
    with pytest.raises(RuntimeError, match="given up"):
        database.transact(_abandoned)
    a_job(services)
    seen = read_events(services, start)
    if database.backend == "SQLite":  # one writer at a time, and a number given up is given out again
        assert len(seen) == 2
        return
    assert [event.object_id for event in seen] == [job_id]
    clock.advance(services.policy.claim_ttl)
    assert len(read_events(services, start)) == 2
    assert find_job(services, job_id).version == 1


def _abandoned(tx: Tx) -> None:
    register_worker(tx, WorkerId("never"), pool=DEFAULT_POOL, instance_type=None, metadata={})
    raise RuntimeError("given up")
