"""The guards, and what taking each of them out looks like."""

from dataclasses import dataclass
from pathlib import Path

CONTRACT = "tests/contract"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    name: str
    breaks: str
    """The invariant that no longer holds."""
    file: str
    was: str
    becomes: str
    noticed_by: tuple[str, ...]
    on: str = "sqlite"
    """The databases on which to look, as a pytest expression."""

    def apply(self, source: Path) -> None:
        path = source / self.file
        text = path.read_text()
        assert text.count(self.was) == 1, f"{self.name}: its text occurs {text.count(self.was)} times in {self.file}"
        path.write_text(text.replace(self.was, self.becomes))


MUTANTS = (
    Mutant(
        name="moves_unguarded",
        breaks="J6: the database refuses moves that the state table forbids",
        file="herdsman/db/guards.py",
        was='f"NEW.status <> OLD.status AND NOT ({legal})"',
        becomes='"1 = 0"',
        noticed_by=(f"{CONTRACT}/test_guard_moves.py",),
    ),
    Mutant(
        name="audit_writable",
        breaks="A1: the audit is append-only",
        file="herdsman/db/guards.py",
        was='(Refusal("1 = 1", "orchestrator_audit is append-only"),)',
        becomes='(Refusal("1 = 0", "orchestrator_audit is append-only"),)',
        noticed_by=(f"{CONTRACT}/test_guards.py", f"{CONTRACT}/test_audit.py"),
    ),
    Mutant(
        name="audit_with_gaps",
        breaks="A1: every move raises the version by one",
        file="herdsman/db/guards.py",
        was="(NOT {moved} AND NEW.version <> OLD.version)",
        becomes="(1 = 0)",
        noticed_by=(f"{CONTRACT}/test_guard_versions.py",),
    ),
    Mutant(
        name="any_token_completes",
        breaks="J3: only the current claim may complete a job",
        file="herdsman/jobs/running_sql.py",
        was='jobs.c.claim_token == bindparam("b_token"))',
        becomes='bindparam("b_token") == bindparam("b_token"))',
        noticed_by=(f"{CONTRACT}/test_stale.py",),
    ),
    Mutant(
        name="cancel_forgotten",
        breaks="J7: after an acknowledged cancel a job is never done",
        file="herdsman/jobs/running_sql.py",
        was=", jobs.c.cancel_requested_at.is_(None))",
        becomes=")",
        noticed_by=(f"{CONTRACT}/test_cancel.py",),
    ),
    Mutant(
        name="body_not_compared",
        breaks="J2: the same id with another body is a conflict",
        file="herdsman/jobs/sql.py",
        was="if row.body_hash != draft.body_hash:",
        becomes="if False:",
        noticed_by=(f"{CONTRACT}/test_submit.py",),
    ),
    Mutant(
        name="draining_worker_served",
        breaks="W2: a worker that drains is given nothing",
        file="herdsman/jobs/claim_sql.py",
        was="            workers.c.status == WorkerStatus.ACTIVE.value,\n",
        becomes="",
        noticed_by=(f"{CONTRACT}/test_claim.py", f"{CONTRACT}/test_workers.py"),
    ),
    Mutant(
        name="attempts_not_counted",
        breaks="J5: attempts are counted when claiming",
        file="herdsman/jobs/claim_sql.py",
        was="attempts=jobs.c.attempts + 1",
        becomes="attempts=jobs.c.attempts",
        noticed_by=(f"{CONTRACT}/test_retry.py", f"{CONTRACT}/test_claim.py"),
    ),
    Mutant(
        name="all_are_charged",
        breaks="J5: a job that a lost worker had only taken ahead is not charged",
        file="herdsman/jobs/rules.py",
        was="return [each for each in ordered[first + 1 :] if each.status == JobStatus.CLAIMED]",
        becomes="return []",
        noticed_by=(f"{CONTRACT}/test_ahead.py",),
        on="sqlite",
    ),
    Mutant(
        name="worker_killer_goes_on",
        breaks="J5: a job that kills workers stops after two",
        file="herdsman/jobs/rules.py",
        was="held.worker_losses >= usual.max_worker_losses",
        becomes="False",
        noticed_by=(f"{CONTRACT}/test_retry.py", f"{CONTRACT}/test_sweep.py"),
    ),
    Mutant(
        name="retry_at_the_head",
        breaks="J8: a retry never goes to the head of the queue",
        file="herdsman/jobs/rules.py",
        was="held._replace(run_at=due, place=place(due, held.priority, policy.priority_step))",
        becomes="held._replace(run_at=due)",
        noticed_by=(f"{CONTRACT}/test_retry.py", f"{CONTRACT}/test_order.py", f"{CONTRACT}/test_sweep.py"),
    ),
    Mutant(
        name="silent_worker_keeps_job",
        breaks="J4: a job whose worker died is queued again",
        file="herdsman/jobs/running_sql.py",
        was='            jobs.c.claim_expires_at < bindparam("b_now"),\n',
        becomes="",
        noticed_by=(f"{CONTRACT}/test_sweep.py",),
    ),
    Mutant(
        name="living_job_deleted",
        breaks="J1: an accepted job is not deleted before it has ended",
        file="herdsman/db/guards.py",
        was="f\"NOT ({in_states(JOB.terminal, 'OLD.status')})\"",
        becomes='"1 = 0"',
        noticed_by=(f"{CONTRACT}/test_guards.py",),
    ),
    Mutant(
        name="contention_not_retried",
        breaks="S6: a transaction that was in another's way is done again",
        file="herdsman/db/connection.py",
        was="TRIES = 12",
        becomes="TRIES = 1",
        noticed_by=(f"{CONTRACT}/test_concurrency.py", f"{CONTRACT}/test_faults.py"),
        on="postgresql or mariadb",
    ),
    Mutant(
        name="locked_jobs_not_skipped",
        breaks="two claimers never take the same job",
        file="herdsman/jobs/claim_sql.py",
        was='.limit(sa.bindparam("b_limit")).with_for_update(skip_locked=True)',
        becomes='.limit(sa.bindparam("b_limit"))',
        noticed_by=(f"{CONTRACT}/test_concurrency.py",),
        on="postgresql",
    ),
    Mutant(
        name="any_worker_ends_a_claim",
        breaks="X7: a claim may be ended only by the worker that holds it",
        file="herdsman/jobs/running_sql.py",
        was="_ITS_OWN = jobs.c.last_worker_id == func.coalesce(",
        becomes="_ITS_OWN = jobs.c.job_id != func.coalesce(",
        noticed_by=(f"{CONTRACT}/test_work.py", f"{CONTRACT}/test_logs.py"),
    ),
    Mutant(
        name="a_revoked_token_works",
        breaks="X3: a token that was revoked opens nothing",
        file="herdsman/access/rules.py",
        was="return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)",
        becomes="return self.expires_at is None or now < self.expires_at",
        noticed_by=(f"{CONTRACT}/test_tokens.py",),
    ),
    Mutant(
        name="a_bootstrap_token_works_twice",
        breaks="the bootstrap secret is good for one exchange",
        file="herdsman/access/sql.py",
        was="fresh = (tokens.c.id == token_id, tokens.c.used_at.is_(None), tokens.c.revoked_at.is_(None))",
        becomes="fresh = (tokens.c.id == token_id, tokens.c.revoked_at.is_(None))",
        noticed_by=(f"{CONTRACT}/test_tokens.py",),
    ),
    Mutant(
        name="the_claim_of_the_gone_is_kept",
        breaks="a claim for a caller that hung up is given back",
        file="herdsman/concurrency.py",
        was="if leaving.done() and not leaving.cancelled():",
        becomes="if False:",
        noticed_by=("tests/unit/test_writer.py", f"{CONTRACT}/test_http_life.py"),
        on="test and not postgresql and not mariadb",
    ),
    Mutant(
        name="one_bad_item_spoils_its_round",
        breaks="what came together with a submission that is refused is written all the same",
        file="herdsman/jobs/writer.py",
        was="if len(batch) > 1 and not isinstance(error, StoreUnavailable | StoreMisconfigured):",
        becomes="if False:",
        noticed_by=("tests/unit/test_writer.py",),
        on="test",
    ),
    Mutant(
        name="never_fenced",
        breaks="W5: without accepted heartbeats a worker stops its job",
        file="herdsman/worker/stop_rules.py",
        was="if now - heard.kept_at >= limits.self_fence.total_seconds():",
        becomes="if False:",
        noticed_by=("tests/unit/worker/test_supervisor.py", "tests/unit/worker/test_parts.py"),
        on="test",
    ),
    Mutant(
        name="one_gpu_for_two",
        breaks="L1: two workers on one GPU that ask in one transaction",
        file="herdsman/jobs/assign.py",
        was="(room is None or taken.isdisjoint(room.gpus))",
        becomes="(room is None or bool(room))",
        noticed_by=(f"{CONTRACT}/test_choice_leases.py",),
    ),
    Mutant(
        name="agents_in_vain",
        breaks="J13: a job that nobody can take stops no other agent's jobs",
        file="herdsman/jobs/assign.py",
        was="circle = self._agents(pool, lambda: JobSelector(types=types))",
        becomes="circle = islice(self._agents(pool, JobSelector), count)",
        noticed_by=(f"{CONTRACT}/test_choice.py",),
    ),
    Mutant(
        name="keys_uncounted",
        breaks="only so many jobs of a key run at a time",
        file="herdsman/jobs/assign.py",
        was='if claim_sql.running_of(self.tx, "concurrency_key", key).get(key, 0) >= self.rules.most_of(key):',
        becomes='if claim_sql.running_of(self.tx, "concurrency_key", key).get(key, 0) < 0:',
        noticed_by=(f"{CONTRACT}/test_choice.py",),
    ),
    Mutant(
        name="keys_unlocked",
        breaks="two replicas cannot both give out the last place of a key",
        file="herdsman/jobs/assign.py",
        was="            claim_sql.lock_key(self.tx, key)\n",
        becomes="",
        noticed_by=(f"{CONTRACT}/test_choice.py",),
        on="postgresql or mariadb",
    ),
    Mutant(
        name="pauses_ignored",
        breaks="what is paused is not given out",
        file="herdsman/jobs/claim_sql.py",
        was="            ~sa.exists(sa.select(jobs.c.job_id).where(jobs.c.worker_id == workers.c.id)),\n            ~_POOL_HELD,\n",
        becomes="            ~sa.exists(sa.select(jobs.c.job_id).where(jobs.c.worker_id == workers.c.id)),\n",
        noticed_by=(f"{CONTRACT}/test_choice.py",),
    ),
    Mutant(
        name="monitor_off",
        breaks="an end that ComfyUI never told is found all the same",
        file="herdsman/worker/service_run.py",
        was="            elif monitor.is_due(now):\n",
        becomes="            elif now < 0:\n",
        noticed_by=("tests/integration/worker/test_comfyui_worker.py",),
        on="never_told",
    ),
    Mutant(
        name="sent_before_stored",
        breaks="the id of a job at its service is stored before anything is sent",
        file="herdsman/worker/service_run.py",
        was="        self.job.mark_service(chosen, MarkStatus.SUBMITTED)\n        try:\n",
        becomes="        try:\n",
        noticed_by=("tests/unit/worker/test_service_run.py",),
        on="test",
    ),
    Mutant(
        name="unreached_is_unknown",
        breaks="a service that does not answer is no verdict",
        file="herdsman/worker/service_run.py",
        was="            self._bear(error)\n            return None\n",
        becomes="            return Unknown(str(error))\n",
        noticed_by=("tests/unit/worker/test_service_run.py",),
        on="test",
    ),
    Mutant(
        name="leaving_cancels",
        breaks="a worker that leaves, or lost its claim, does not stop what the next one will adopt",
        file="herdsman/worker/service_run.py",
        was="        if self.job.stop_reason in _OURS:\n",
        becomes="        if self.job.stop_reason:\n",
        noticed_by=("tests/unit/worker/test_service_run.py",),
        on="test",
    ),
    Mutant(
        name="claim_without_lease",
        breaks="L5: a claim on a GPU comes with its lease",
        file="herdsman/jobs/assign.py",
        was="if room is not None and slot == 0:",
        becomes="if room is not None and slot < 0:",
        noticed_by=(f"{CONTRACT}/test_choice_leases.py",),
    ),
    Mutant(
        name="refused_steps_ignored",
        breaks="P8: a machine is ended only when its worker was drained or failed",
        file="herdsman/fleet/reconcile.py",
        was="            if worker_id in not_as_planned:\n",
        becomes="            if worker_id in ():\n",
        noticed_by=(f"{CONTRACT}/test_reconciler.py",),
    ),
)
