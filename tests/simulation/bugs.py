"""Bugs of one line each, of the kind that people write. Thousands of seeds are worth nothing if they let one pass.

None of them has a second guard behind it that holds alone: what such a bug breaks, nobody can see.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    breaks: str
    file: str
    was: str
    becomes: str

    def apply(self, source: Path) -> None:
        path = source / "herdsman" / self.file
        text = path.read_text()
        assert text.count(self.was) == 1, f"{self.name}: its text occurs {text.count(self.was)} times"
        path.write_text(text.replace(self.was, self.becomes))


BUGS = (
    Bug(
        "any_token_ends",
        "J3: the token of a claim is not compared",
        "jobs/running_sql.py",
        'jobs.c.claim_token == bindparam("b_token"))\n# Tokens',
        'bindparam("b_token") == bindparam("b_token"))\n# Tokens',
    ),
    Bug(
        "token_stays",
        "J3: a claim has the number of the one before",
        "jobs/claim_sql.py",
        "        claim_token=jobs.c.claim_token + 1,\n        # Counted",
        "        claim_token=jobs.c.claim_token,\n        # Counted",
    ),
    Bug(
        "cancel_forgotten",
        "J7: a job that runs is called cancelled, and nobody is told",
        "jobs/sql.py",
        'values |= {"reason": Reason.CANCEL_REQUESTED.value, "cancel_requested_at": now}',
        'values |= {"reason": Reason.CANCEL_REQUESTED.value}',
    ),
    Bug(
        "silent_worker_keeps_job",
        "J4: nobody takes a job back from a dead worker",
        "jobs/running_sql.py",
        'jobs.c.claim_expires_at < bindparam("b_now"),',
        "jobs.c.claim_expires_at < jobs.c.claimed_at,",
    ),
    Bug(
        "beats_keep_nothing",
        "W5: beats do not keep the claims alive",
        "jobs/running_sql.py",
        '.values(claim_expires_at=bindparam("b_expires"))\n)\nPROGRESS',
        ".values(claim_expires_at=jobs.c.claim_expires_at)\n)\nPROGRESS",
    ),
    Bug(
        "no_self_fence",
        "W5: a worker that is cut off goes on",
        "worker/stop_rules.py",
        "if now - heard.kept_at >= limits.self_fence.total_seconds():",
        "if False:",
    ),
    Bug(
        "lost_claim_goes_on",
        "J3: a worker that lost its claim goes on",
        "worker/stop_rules.py",
        "if key in heard.lost or heard.dismissed is not None:",
        "if heard.dismissed is not None:",
    ),
    Bug(
        "poison_goes_on",
        "J5: a job that kills workers is tried for ever",
        "jobs/rules.py",
        "held.worker_losses >= usual.max_worker_losses",
        "held.worker_losses > usual.max_worker_losses",
    ),
    Bug(
        "one_attempt_more",
        "J5: a job is tried once too often",
        "jobs/rules.py",
        "spent >= held.max_attempts",
        "spent > held.max_attempts",
    ),
    Bug(
        "draining_worker_served",
        "W2: a worker that drains is given jobs",
        "jobs/claim_sql.py",
        "            workers.c.status == WorkerStatus.ACTIVE.value,\n",
        "",
    ),
    Bug(
        "no_fence",
        "E1: who was deposed writes on",
        "fleet/leader_sql.py",
        "    if not found or found[0][0] <= tx.now():\n",
        "    if False:\n",
    ),
    Bug(
        "epoch_stays",
        "E1: a new leader has the epoch of the old one",
        "fleet/leader_sql.py",
        "current.epoch + (0 if renews else 1)",
        "current.epoch + (0 if renews else 0)",
    ),
    Bug(
        "unknown_start_is_none",
        "P2: a start without an answer counts as none",
        "fleet/execute.py",
        "            raise  # the place stays taken; the next listings will show what became of it\n",
        "            self._write(epoch, lambda tx: _give_back(tx, intent, policy, CapacityUnavailable('?'))); raise\n",
    ),
    Bug(
        "terminated_at_once",
        "P5: a machine counts as gone when we have asked for its end",
        "fleet/phases/scale.py",
        "    if worker.absent_since is None:\n        return False\n",
        "    if worker.end_asked_at is not None:\n        return True\n    if worker.absent_since is None:\n        return False\n",
    ),
    Bug(
        "orphans_left",
        "P3: machines that belong to nobody live on",
        "fleet/phases/instances.py",
        "        if reason is not None and since is not None and",
        "        if False and reason is not None and since is not None and",
    ),
    Bug(
        "ended_once",
        "P5: the end of a machine is asked for once",
        "fleet/phases/scale.py",
        "worker.end_asked_at is None or now - worker.end_asked_at > policy.end_again_after",
        "worker.end_asked_at is None",
    ),
    Bug(
        "absent_is_gone",
        "P2: a machine that a listing lacks is gone",
        "fleet/phases/scale.py",
        "return now - worker.absent_since > policy.absence_window",
        "return True",
    ),
    Bug(
        "any_identity_is_ours",
        "P11: an instance that another database started is taken for an orphan of ours",
        "fleet/phases/instances.py",
        "(stamp is not None and stamp.installation == seen.installation)",
        "(stamp is not None)",
    ),
    Bug(
        "copy_acts",
        "P11: a copy of a database takes itself for the original",
        "fleet/model.py",
        "if self.place is not None and not same_place(self.place, here):",
        "if False:",
    ),
    Bug(
        "went_back_unnoticed",
        "P11: a restored database takes the instances of its lost time for orphans",
        "fleet/model.py",
        "went_back = self.held or self.ahead(names)",
        "went_back = self.held",
    ),
    Bug(
        "restored_numbers_stay",
        "P11: a restored database gives out the numbers of its lost time again",
        "fleet/installation_sql.py",
        'spawned=max(row["spawned"], highest) + LEAP, raised_at',
        'spawned=row["spawned"], raised_at',
    ),
    Bug(
        "retries_forgotten",
        "J1: a job that waits for its next attempt waits for ever",
        "jobs/sweep.py",
        "if state in (JobStatus.SCHEDULED, JobStatus.FAILED)",
        "if state in (JobStatus.SCHEDULED,)",
    ),
    Bug(
        "resubmit_refused",
        "J2: a submission that is repeated is refused",
        "jobs/sql.py",
        "if row.body_hash != draft.body_hash:",
        "if True:",
    ),
    Bug(
        "results_crossed",
        "J3: a job of a batch gets the result of another",
        "worker/job_run.py",
        "task = by_id.get(job_id) if isinstance(job_id, str) else None",
        "task = next((each for each in by_id.values() if each.word is None), None)",
    ),
    Bug(
        "attempts_not_counted",
        "J5: a claim is not counted as an attempt",
        "jobs/claim_sql.py",
        "attempts=jobs.c.attempts + 1",
        "attempts=jobs.c.attempts",
    ),
    Bug(
        "requeue_keeps_token",
        "J6: a claim from before a requeue still counts",
        "jobs/sql.py",
        '    "claim_token": jobs.c.claim_token + 1,\n',
        "",
    ),
    Bug(
        "silent_machine_kept",
        "P4: a machine from which nobody reports is paid for ever",
        "fleet/phases/health.py",
        'return _late(age, policy.boot_timeout, Code.BOOT_TIMEOUT, "No heartbeat since its machine runs")',
        "return None",
    ),
    Bug(
        "memory_given_twice",
        "L1: what is leased already is not counted",
        "leases/rules.py",
        "return sum(each.memory_mb for each in self.live if worker_id is None or each.worker_id != worker_id)",
        "return 0",
    ),
    Bug(
        "alone_is_shared",
        "L1: who holds a GPU alone gets company",
        "leases/rules.py",
        "    if any(each.exclusive for each in others):\n",
        "    if False:\n",
    ),
    Bug(
        "late_beat_revives",
        "L2: a heartbeat after its end gives a lease back",
        "leases/sql.py",
        '        leases.c.expires_at > bindparam("b_now"),\n    )\n    .values(expires_at',
        "        leases.c.expires_at > leases.c.created_at,\n    )\n    .values(expires_at",
    ),
    Bug(
        "key_ignored",
        "jobs of one concurrency key run side by side",
        "jobs/assign.py",
        '            if claim_sql.running_of(self.tx, "concurrency_key", key).get(key, 0) >= self.rules.most_of(key):\n',
        '            if claim_sql.running_of(self.tx, "concurrency_key", key).get(key, 0) > self.rules.most_of(key):\n',
    ),
    Bug(
        "due_too_early",
        "J9: a job that is to wait is queued at once",
        "jobs/sql.py",
        'jobs.c.run_at <= sa.bindparam("b_now"))',
        'jobs.c.created_at <= sa.bindparam("b_now"))',
    ),
    Bug(
        "entry_settled_first",
        "S1: an entry is acknowledged before its job is written",
        "redis/bus.py",
        "            new = read(entry, self.agent)\n",
        "            redis.settle(entry.stream, [entry.id]); new = read(entry, self.agent)\n",
    ),
    Bug(
        "end_given_up",
        "J12: an end that cannot be reported at once is forgotten",
        "worker/supervisor.py",
        "if hurried or self.keeper.heard.dismissed is not None:",
        "if True:",
    ),
    Bug(
        "outage_is_silence",
        "P10: after an outage of the database every worker looks silent",
        "fleet/snapshot.py",
        "return instant if self.beats_since is None else max(instant, self.beats_since)",
        "return instant",
    ),
    Bug(
        "outage_is_charged",
        "P10: claims that ran out in an outage are charged to their workers",
        "jobs/sweep.py",
        "None if term is None or term.beats_since is None else term.beats_since + ttl",
        "None",
    ),
    Bug(
        "exited_start_waited_for",
        "a worker whose machine exited while it started holds its place",
        "fleet/phases/health.py",
        'if (ended := _ended(worker, policy, seen)) is not None:\n        return ActionReason(Code.INSTANCE_ENDED, f"Its machine ended during',
        'if (ended := _ended(worker, policy, seen)) is not None and False:\n        return ActionReason(Code.INSTANCE_ENDED, f"Its machine ended during',
    ),
    Bug(
        "agents_in_vain",
        "J13: a job that nobody can run stops the jobs of other agents",
        "jobs/assign.py",
        "circle = self._agents(pool, lambda: JobSelector(types=types))",
        "circle = islice(self._agents(pool, JobSelector), count)",
    ),
    Bug(
        "begun_given_back",
        "J14: a claim that was taken ahead is given back as not begun, and begins all the same",
        "worker/supervisor.py",
        "if group not in self._waiting or (in_process and not self._runner.recall(self.warm)):",
        "if group not in self._waiting:",
    ),
    Bug(
        "handler_without_fence",
        "W8: a handler whose supervisor stands still goes on beside the next one",
        "worker/job_run.py",
        'child.send({"run": order.run, "until": kept_until})',
        "pass",
    ),
)
