"""The other contender: the same statements in the same transactions, by hand on the bare driver."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from bench.work import CLAIM_TTL_S, KIND, PAYLOAD, RESULT, WORKERS
from herdsman.ids import JobId
from herdsman.jobs.model import ClaimKey
from herdsman.server.wiring import new_job_id

# Every value is bound: only then PyMySQL sends many rows as one statement.
SUBMIT = """
INSERT INTO job_states (job_id, updated_at, place, run_at, created_at, type, status, reason, actor, version, agent, pool,
    attempts, interruptions, worker_losses, out_of_memory, claim_token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
ALWAYS = (KIND, "pending", "submitted", "agent:default", 1, "default", "default", 0, 0, 0, 0, 0)
SUBMIT_BODY = """
INSERT INTO job_bodies (job_id, payload, body_hash, tags, agent, priority, max_attempts) VALUES (?, ?, ?, ?, ?, ?, ?)
"""
ALWAYS_BODY = ("[]", "default", 0, 3)
FREE = """
SELECT id, pool FROM workers WHERE id IN ({workers}) AND status = 'active'
    AND NOT EXISTS (SELECT 1 FROM job_states WHERE worker_id = workers.id)
ORDER BY id {lock}
"""
NEXT = """
SELECT job_id, claim_token, type, (SELECT payload FROM job_bodies b WHERE b.job_id = job_states.job_id), attempts,
    timeout_s, service_job_id FROM job_states
WHERE status = 'pending' AND pool = ? ORDER BY place LIMIT ? {skip}
"""
CLAIM = """
UPDATE job_states SET version = version + 1, updated_at = ?, actor = ?, status = 'claimed', reason = 'claimed',
    worker_id = ?, last_worker_id = ?, claim_token = claim_token + 1, attempts = attempts + 1,
    claim_expires_at = ?, claimed_at = ?, deadline_at = ?, started_at = NULL, progress = NULL, progress_note = NULL,
    progress_at = NULL
WHERE job_id = ? AND claim_token = ? AND status = 'pending'
"""
COMPLETE = """
UPDATE job_states SET version = version + 1, updated_at = ?, actor = 'worker', status = 'done',
    reason = 'completed', finished_at = ?, worker_id = NULL, claim_expires_at = NULL, deadline_at = NULL
WHERE job_id = ? AND claim_token = ? AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL
"""
STORE = "INSERT INTO job_ends (job_id, claim_token, result) VALUES (?, ?, ?)"


@dataclass(frozen=True)
class Tongue:
    """What differs between the databases for somebody who writes SQL by hand."""

    mark: str = "%s"
    begin: str | None = None
    """None where the driver begins by itself."""
    clock: str | None = None
    """None where the machine's clock is the only one."""
    lock: str = ""
    skip: str = ""


TONGUES = {
    "sqlite": Tongue(mark="?", begin="BEGIN IMMEDIATE"),
    "mysql": Tongue(clock="SELECT UTC_TIMESTAMP(6)", lock="FOR UPDATE", skip="FOR UPDATE SKIP LOCKED"),
    "postgresql": Tongue(
        clock="SELECT clock_timestamp(), set_config('statement_timeout', '10000', true)",
        lock="FOR NO KEY UPDATE",
        skip="FOR UPDATE SKIP LOCKED",
    ),
}


class Raw:
    def __init__(self, connection: Any, tongue: Tongue) -> None:
        self._connection = connection
        self._tongue = tongue
        self._submit, self._submit_body = self._spoken(SUBMIT), self._spoken(SUBMIT_BODY)
        self._free = {count: self._spoken(FREE, count) for count in (1, len(WORKERS))}
        self._next = self._spoken(NEXT)
        self._claim = self._spoken(CLAIM)
        self._complete, self._store = self._spoken(COMPLETE), self._spoken(STORE)

    def _spoken(self, sql: str, workers: int = 0) -> str:
        listed = ", ".join("?" * workers)
        whole = sql.format(workers=listed, lock=self._tongue.lock, skip=self._tongue.skip)
        return whole.replace("?", self._tongue.mark)

    def submit(self, count: int) -> None:
        cursor = self._begin()
        now = self._now(cursor)
        made = [self._new_job(now) for _ in range(count)]
        self._run(cursor, self._submit, [job for job, _ in made])
        self._run(cursor, self._submit_body, [body for _, body in made])
        self._end(cursor)

    def _new_job(self, now: datetime) -> tuple[tuple[object, ...], tuple[object, ...]]:
        payload = json.dumps(PAYLOAD)
        at = self._at(now)
        digest = sha256(payload.encode()).hexdigest()
        job_id = new_job_id()
        return (job_id, at, _microseconds(now), at, at, *ALWAYS), (job_id, payload, digest, *ALWAYS_BODY)

    def claim(self, count: int) -> Sequence[ClaimKey]:
        cursor = self._begin()
        cursor.execute(self._free[count], WORKERS[:count])
        free = cursor.fetchall()
        cursor.execute(self._next, (free[0][1], len(free)))
        found = cursor.fetchall()
        now = self._now(cursor)
        self._run(cursor, self._claim, [self._taken(*pair, now) for pair in zip(free, found, strict=False)])
        self._end(cursor)
        claims = [(ClaimKey(JobId(row[0]), row[1] + 1), json.loads(row[3])) for row in found]
        return [key for key, _payload in claims]

    def _taken(self, worker: Any, job: Any, now: datetime) -> tuple[object, ...]:
        worker_id, _ = worker
        at, expires = self._at(now), self._at(now + timedelta(seconds=CLAIM_TTL_S))
        deadline = self._at(now + timedelta(seconds=job[5])) if job[5] else None
        return at, f"worker:{worker_id}", worker_id, worker_id, expires, at, deadline, job[0], job[1]

    def complete(self, claims: Sequence[ClaimKey]) -> None:
        cursor = self._begin()
        at = self._at(self._now(cursor))
        self._run(cursor, self._complete, [(at, at, key.job_id, key.token) for key in claims])
        self._run(cursor, self._store, [(key.job_id, key.token, json.dumps(RESULT)) for key in claims])
        self._end(cursor)

    def _begin(self) -> Any:
        cursor = self._connection.cursor()
        if self._tongue.begin:
            cursor.execute(self._tongue.begin)
        return cursor

    def _now(self, cursor: Any) -> datetime:
        if self._tongue.clock is None:
            return datetime.now(UTC)
        cursor.execute(self._tongue.clock)
        return cursor.fetchone()[0]

    def _at(self, instant: datetime) -> object:
        if self._tongue.clock is not None:
            return instant
        return instant.replace(tzinfo=None).isoformat(" ", "microseconds")

    def _run(self, cursor: Any, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        if len(rows) == 1:
            cursor.execute(sql, rows[0])
        else:
            cursor.executemany(sql, rows)
        assert cursor.rowcount == len(rows), f"{cursor.rowcount} of {len(rows)} rows were written"

    def _end(self, cursor: Any) -> None:
        cursor.close()
        self._connection.commit()


def _microseconds(now: datetime) -> int:
    return int(now.replace(tzinfo=UTC).timestamp() * 1_000_000)
