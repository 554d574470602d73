"""Submissions and interventions of a local herd, by the rules of the real store."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from herdsman.errors import Conflict, InvalidRequest
from herdsman.ids import JobId
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.rules import body_hash, check
from herdsman.jobs.wire import JobDetail
from herdsman.json_text import encode
from herdsman.states import JOB, JobState, Reason
from herdsman.testing.local_ledger import Ledger
from herdsman.testing.memory_jobs import HELD, MemoryJob, MemoryJobs

EDIT_NOTHING = object()


class Desk:
    def __init__(self, jobs: MemoryJobs, ledger: Ledger) -> None:
        self.jobs = jobs
        self.ledger = ledger
        self._hashes: dict[JobId, str] = {}
        self._keys: dict[tuple[str, str], JobId] = {}

    def submit(self, news: Sequence[NewJob]) -> list[Submitted]:
        """All of them or, when one is refused, none."""
        for new in news:
            check(new, self.jobs.policy)
            self._known(new)
        return [self._submit(new) for new in news]

    def find(self, job_id: str) -> MemoryJob:
        self.jobs.sweep()
        job = self.jobs.job(JobId(job_id))
        self.note(job)
        return job

    def detail(self, job_id: str) -> JobDetail:
        return self.ledger.detail(self.find(job_id), self.jobs.policy.max_attempts)

    def cancel(self, job_id: str) -> JobState:
        """A held job is cancelled once its handler has let go."""
        state = self.jobs.cancel(JobId(job_id))
        self.note(self.jobs.job(JobId(job_id)))
        return state if state in HELD else JobState.CANCELLED

    def retry(self, job_id: str, payload: object = EDIT_NOTHING) -> None:
        old = self.find(job_id)
        if old.state not in JOB.terminal:
            raise InvalidRequest(f"job {job_id!r} is {old.state}: only a job that has ended can be requeued")
        edited = payload is not EDIT_NOTHING
        if edited:
            encode(payload, what="payload", limit=self.jobs.policy.max_payload_bytes)
        asked = replace(old.new, payload=payload) if edited else old.new
        # With a clean slate, and at once; the raised token makes every claim of before stale (J6).
        self.jobs.submit(replace(asked, job_id=old.job_id, run_at=None, delay=None))
        fresh = self.jobs.job(old.job_id)
        fresh.reason = Reason.REQUEUED_EDITED if edited else Reason.REQUEUED
        fresh.token, fresh.logs, fresh.checkpoint = old.token + 1, old.logs, old.checkpoint
        self.note(fresh)

    def note(self, *jobs: MemoryJob) -> None:
        self.ledger.note(jobs, self.jobs.now())

    def _submit(self, new: NewJob) -> Submitted:
        known = self._known(new)
        if known is not None:
            return Submitted(known, created=False)
        named = replace(new, job_id=new.job_id or JobId(uuid4().hex))
        job_id = self.jobs.submit(named)
        self._hashes[job_id] = body_hash(new)
        if new.idempotency_key is not None:
            self._keys[new.agent, new.idempotency_key] = job_id
        self.note(self.jobs.job(job_id))
        return Submitted(job_id, created=True)

    def _known(self, new: NewJob) -> JobId | None:
        """The job that this is, if it came before; the same name for another body is refused (J2)."""
        found = new.job_id if new.job_id in self._hashes else None
        if found is None and new.idempotency_key is not None:
            found = self._keys.get((new.agent, new.idempotency_key))
        if found is not None and self._hashes[found] != body_hash(new):
            raise Conflict(f"job {found!r} is there already, with another body: choose another name")
        return found
