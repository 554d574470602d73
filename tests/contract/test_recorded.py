"""A whole history as the checkers take it, read from each of the three databases."""

from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.jobs.commands import requeue_job
from herdsman.jobs.worker_commands import complete_job, fail_job
from herdsman.states import LEASE, POOL, JobStatus
from herdsman.testing.simulation.checks import violations
from herdsman.testing.simulation.checks.history import AttemptRow, JobRow, LeaseRow, Move, Row, WorkerRow
from herdsman.testing.simulation.event_log import only, read_history
from tests.support.builders import HOPELESS, a_claim, claimed
from tests.support.databases import NOON, MovingClock
from tests.support.rows import add_row

pytestmark = pytest.mark.usefixtures("stopped_clock")
SECOND = timedelta(seconds=1)


def test_a1_the_whole_story_of_a_job_is_read(services: Services, clock: MovingClock) -> None:
    claim = a_claim(services, priority=7, max_attempts=5)
    clock.advance(SECOND)
    fail_job(services, claim.key, HOPELESS, who="worker:w1")
    clock.advance(SECOND)
    requeue_job(services, claim.key.job_id, who="ann")
    clock.advance(SECOND)
    again = claimed(services, claim.worker_id)
    clock.advance(SECOND)
    complete_job(services, again.key, {"ok": 1.5}, who="worker:w1")

    history = read_history(services.database, zero=NOON - 10 * SECOND)
    assert violations(history) == []
    told = [(move.seq, move.new, move.token, move.at) for move in history.moves if move.kind == "job"]
    assert told == [
        (1, "pending", 0, 10),
        (2, "claimed", 1, 10),
        (3, "dead_letter", 1, 11),
        (4, "pending", 2, 12),
        (5, "claimed", 3, 13),
        (6, "done", 3, 14),
    ]
    (job,) = (row for row in history.rows if isinstance(row, JobRow))
    assert (job.id, job.status, job.version) == (claim.key.job_id, JobStatus.DONE, 6)
    assert (job.claim_token, job.attempts, job.max_attempts, job.priority) == (3, 1, 5, 7)
    assert (job.result, job.created_at, job.run_at) == ({"ok": 1.5}, 10, 12)
    usual = {"job_id": job.id, "worker": "w1"}
    assert sorted(history.attempts, key=lambda attempt: attempt.token) == [
        AttemptRow(token=1, claimed_at=10, ended_at=11, outcome="dead_letter", reason="user_error", **usual),
        AttemptRow(token=3, claimed_at=13, ended_at=14, outcome="done", reason="completed", **usual),
    ]


def test_rows_of_every_kind_are_read_with_their_moves(services: Services) -> None:
    claim = a_claim(services)
    add_row(services.database, POOL, "p")
    add_row(services.database, LEASE, "l", gpu_uuid="GPU-1", lease_seq=4)
    history = read_history(services.database, zero=NOON)
    assert {row.id: row for row in history.rows if row.kind != "job"} == {
        "w1": WorkerRow(id="w1", status="active", version=2, instance=None),
        "p": Row(kind="pool", id="p", status="starting", version=1),
        "l": LeaseRow(id="l", status="active", version=1, gpu="GPU-1", seq=4),
    }
    (open_one,) = history.attempts
    assert (open_one.job_id, open_one.ended_at, open_one.outcome) == (claim.key.job_id, None, None)
    (first,) = (move for move in history.moves if move.kind == "pool")
    assert first == Move(kind="pool", id="p", seq=1, old=None, new="starting", reason="test", actor="test", at=0)


def test_the_other_kinds_can_be_left_out(services: Services) -> None:
    a_claim(services)
    jobs = only(read_history(services.database, zero=NOON), "job")
    assert {row.kind for row in jobs.rows} == {move.kind for move in jobs.moves} == {"job"}
