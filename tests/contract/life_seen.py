"""What the database shows of one example's jobs, beside the model."""

from collections import defaultdict
from typing import Any

from sqlalchemy import select

from herdsman.db.connection import Database
from herdsman.db.schema import audit, job_attempts, job_view
from herdsman.ids import JobId
from herdsman.states import Reason
from tests.contract.life_model import HELD, Model


def seen_jobs(database: Database, agent: str) -> dict[JobId, tuple[Any, ...]]:
    query = select(
        job_view.c.job_id,
        job_view.c.status,
        job_view.c.claim_token,
        job_view.c.attempts,
        job_view.c.interruptions,
        job_view.c.worker_losses,
        job_view.c.cancel_requested_at,
        job_view.c.worker_id,
        job_view.c.service_job_id,
        job_view.c.saved_gpu_s,
        job_view.c.reason,
    ).where(job_view.c.agent == agent)
    found = database.read(lambda tx: tx.execute(query).all())
    return {row.job_id: _shown(row) for row in found}


def _shown(row: Any) -> tuple[Any, ...]:
    counted = (row.claim_token, row.attempts, row.interruptions, row.worker_losses)
    recovered = row.saved_gpu_s is not None
    assert recovered == (row.reason == Reason.RECOVERED)
    cancel = row.cancel_requested_at is not None
    return (row.status, *counted, cancel, row.worker_id, row.service_job_id, recovered)


def check_records(database: Database, model: Model) -> None:
    """A1: one audit row for each step, and the last one is the state; one attempt for each claim."""
    told = select(audit.c.object_id, audit.c.seq, audit.c.from_status, audit.c.to_status)
    tried = select(job_attempts.c.job_id, job_attempts.c.claim_token, job_attempts.c.ended_at)
    steps: defaultdict[str, list[tuple[int, str, str]]] = defaultdict(list)
    tries: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
    ids = list(model.jobs)
    story = told.where(audit.c.object_kind == "job", audit.c.object_id.in_(ids)).order_by(audit.c.seq)
    for step in database.read(lambda tx: tx.execute(story).all()):
        steps[step.object_id].append((step.seq, step.from_status, step.to_status))
    ended = tried.where(job_attempts.c.job_id.in_(ids)).order_by(job_attempts.c.claim_token)
    for attempt in database.read(lambda tx: tx.execute(ended).all()):
        tries[attempt.job_id].append((attempt.claim_token, attempt.ended_at is not None))
    for job_id, job in model.jobs.items():
        assert [seq for seq, _, _ in steps[job_id]] == list(range(1, job.steps + 1))
        assert [before for _, before, _ in steps[job_id]] == [
            None,
            *(after for _, _, after in steps[job_id][:-1]),
        ]
        assert steps[job_id][-1][2] == job.status
        assert len(tries[job_id]) == job.claims
        held = [token for token, closed in tries[job_id] if not closed]
        assert held == ([job.token] if job.status in HELD else [])
