"""A tiny herd that does everything right and writes it down, for checkers to find nothing in."""

from dataclasses import dataclass, field, replace

from herdsman.testing.simulation.checks.history import (
    AttemptRow,
    Cancel,
    Health,
    History,
    JobRow,
    LeaderWrite,
    LeaseRow,
    Limits,
    Move,
    Pod,
    Receipt,
    Row,
    Run,
    Submission,
    Use,
    WorkerRow,
)

LIMITS = Limits(most_pods=3, rescue_s=10, fence_s=12, known_s=20, settled_s=100, report_s=10, most_overtakes=10)
GPU, GPU_MB = "gpu-1", 24_000
HELD = ("claimed", "running")
ENDED = ("done", "dead_letter", "cancelled")
IN_THE_END = {"done": "completed", "cancelled": "cancelled"}


@dataclass
class Telling:
    """Every verb is one moment; what is illegal must not be asked for."""

    now: float = 0.0
    rows: dict[tuple[str, str], Row] = field(default_factory=dict[tuple[str, str], Row])
    moves: list[Move] = field(default_factory=list[Move])
    attempts: list[AttemptRow] = field(default_factory=list[AttemptRow])
    submissions: list[Submission] = field(default_factory=list[Submission])
    cancels: list[Cancel] = field(default_factory=list[Cancel])
    receipts: list[Receipt] = field(default_factory=list[Receipt])
    runs: list[Run] = field(default_factory=list[Run])
    pods: list[Pod] = field(default_factory=list[Pod])
    uses: list[Use] = field(default_factory=list[Use])
    writes: list[LeaderWrite] = field(default_factory=list[LeaderWrite])
    asked_to_cancel: set[str] = field(default_factory=set[str])

    def job(self, job_id: str) -> JobRow:
        row = self.rows["job", job_id]
        assert isinstance(row, JobRow)
        return row

    def submit(self, job_id: str, state: str = "pending", priority: int = 0) -> None:
        at = self.now + 1
        new = JobRow(id=job_id, status="", version=0, created_at=at, run_at=at, priority=priority)
        self.rows["job", job_id] = new
        self._move("job", job_id, state, "submitted", "agent:ann")
        self.submissions.append(Submission(job_id=job_id, at=self.now, priority=priority, expected=job_id))

    def due(self, job_id: str) -> None:
        self._move("job", job_id, "pending", "due", "leader")

    def claim(self, job_id: str, worker: str) -> None:
        job = self.job(job_id)
        changed = replace(job, claim_token=job.claim_token + 1, attempts=job.attempts + 1)
        self.rows["job", job_id] = changed
        self._move("job", job_id, "claimed", "claimed", f"worker:{worker}")
        token, at = changed.claim_token, self.now
        self.attempts.append(AttemptRow(job_id=job_id, token=token, worker=worker, claimed_at=at))
        self.runs.append(Run(job_id=job_id, token=token, worker=worker, began=at))

    def start(self, job_id: str) -> None:
        self._move("job", job_id, "running", "started", f"worker:{self.holder(job_id)}")

    def ask_to_cancel(self, job_id: str) -> None:
        """Of one that is held; its worker ends it later."""
        self.asked_to_cancel.add(job_id)
        self._move("job", job_id, self.job(job_id).status, "cancel_requested", "agent:ann")
        self.cancels.append(Cancel(job_id=job_id, at=self.now))

    def cancel(self, job_id: str) -> None:
        self._move("job", job_id, "cancelled", "cancelled", "agent:ann")
        self.cancels.append(Cancel(job_id=job_id, at=self.now))

    def finish(self, job_id: str) -> None:
        """By itself: done, or what becomes of one that somebody has cancelled meanwhile."""
        state = "cancelled" if job_id in self.asked_to_cancel else "done"
        self._leave(job_id, state, IN_THE_END[state], result=job_id if state == "done" else None)

    def complete(self, job_id: str, worker: str) -> None:
        self.claim(job_id, worker)
        self.finish(job_id)

    def fail(self, job_id: str, reason: str = "job_error") -> None:
        job = self.job(job_id)
        gone = job.attempts - job.interruptions >= LIMITS.most_attempts
        if job_id in self.asked_to_cancel:
            self._leave(job_id, "cancelled", "cancelled")
        elif reason == "user_error" or gone:
            self._leave(job_id, "dead_letter", reason if reason == "user_error" else "attempts_exhausted")
        else:
            self._leave(job_id, "failed", reason)

    def release(self, job_id: str) -> None:
        interruptions = self.job(job_id).interruptions + 1
        state, reason = "pending", "released"
        if interruptions >= LIMITS.most_interruptions:
            state, reason = "dead_letter", "interrupted_too_often"
        if job_id in self.asked_to_cancel:
            state, reason = "cancelled", "cancelled"
        self._stop(job_id, "drained")
        self._leave(job_id, state, reason, interruptions=interruptions)

    def lose(self, job_id: str) -> None:
        """Its worker is killed, and the sweep takes the job back."""
        job = self.job(job_id)
        losses, state, reason = job.worker_losses + 1, "pending", "claim_expired"
        if job.attempts - job.interruptions >= LIMITS.most_attempts:
            state, reason = "dead_letter", "attempts_exhausted"
        if losses >= LIMITS.most_worker_losses:
            state, reason = "dead_letter", "kills_workers"
        if job_id in self.asked_to_cancel:
            state, reason = "cancelled", "cancelled"
        self._stop(job_id, "killed")
        self._leave(job_id, state, reason, "leader", worker_losses=losses)

    def requeue(self, job_id: str) -> None:
        fresh = {"attempts": 0, "interruptions": 0, "worker_losses": 0, "result": None}
        job = self.job(job_id)
        self.rows["job", job_id] = replace(job, claim_token=job.claim_token + 1, **fresh)
        self.asked_to_cancel.discard(job_id)
        self._move("job", job_id, "pending", "requeued", "ann")

    def spawn(self, worker: str) -> None:
        self.rows["worker", worker] = WorkerRow(id=worker, status="", version=0, instance=f"pod-{worker}")
        self._move("worker", worker, "spawning", "created", "leader")
        self.pods.append(Pod(name=f"pod-{worker}", born=self.now))
        self._move("worker", worker, "active", "ready", "leader")

    def end(self, worker: str) -> None:
        self._move("worker", worker, "terminating", "stopped", "leader")
        ended = {"died": self.now, "ended_by_us": True, "end_asked": self.now}
        self.pods = [replace(pod, **ended) if pod.name == f"pod-{worker}" else pod for pod in self.pods]
        self._move("worker", worker, "terminated", "stopped", "leader")

    def lease(self, token: str, memory_mb: int, lasting: float = 2, *, exclusive: bool = False) -> None:
        seq = len(self.uses) + 1
        self.rows["lease", token] = LeaseRow(id=token, status="", version=0, gpu=GPU, seq=seq)
        self._move("lease", token, "active", "granted", "ann")
        use = Use(
            token=token,
            gpu=GPU,
            seq=seq,
            memory_mb=memory_mb,
            exclusive=exclusive,
            asked=self.now - 0.5,
            began=self.now,
            ended=self.now + lasting,
        )
        self.uses.append(use)

    def release_lease(self, token: str) -> None:
        self._move("lease", token, "released", "released", "ann")

    def lead(self, holder: str, epoch: int) -> None:
        self.now += 1
        self.writes.append(LeaderWrite(holder=holder, epoch=epoch, at=self.now))

    def holder(self, job_id: str) -> str:
        return next(each.worker for each in reversed(self.attempts) if each.job_id == job_id)

    def jobs(self, *states: str) -> list[str]:
        return [key for (kind, key), row in self.rows.items() if kind == "job" and row.status in states]

    def history(self) -> History:
        return History(
            moves=tuple(self.moves),
            rows=tuple(self.rows.values()),
            attempts=tuple(self.attempts),
            submissions=tuple(self.submissions),
            cancels=tuple(self.cancels),
            receipts=tuple(self.receipts),
            runs=tuple(self.runs),
            pods=tuple(self.pods),
            uses=tuple(self.uses),
            gpu_mb={GPU: GPU_MB},
            writes=tuple(self.writes),
            healthy=(Health(worker="well", since=0, until=100),),
            outages=((5.0, 60.0),),
            limits=LIMITS,
            last_fault_at=self.now,
            ended_at=self.now + 50,
        )

    def _leave(self, job_id: str, state: str, reason: str, actor: str = "", **values: object) -> None:
        """The claim ends; whoever says so by himself is told that he was heard."""
        worker, token = self.holder(job_id), self.job(job_id).claim_token
        self._stop(job_id, "")
        self.rows["job", job_id] = replace(self.job(job_id), **values)  # type: ignore[arg-type]
        self._move("job", job_id, state, reason, actor or f"worker:{worker}")
        end = {"ended_at": self.now, "outcome": state, "reason": reason}
        self.attempts = [
            replace(each, **end) if (each.job_id, each.token) == (job_id, token) else each for each in self.attempts
        ]
        if not actor:
            self.receipts.append(Receipt(job_id=job_id, token=token, worker=worker, status=state, at=self.now))

    def _stop(self, job_id: str, by: str) -> None:
        self.runs = [
            replace(run, ended=self.now + 0.5, stopped_by=by) if run.job_id == job_id and run.ended is None else run
            for run in self.runs
        ]

    def _move(self, kind: str, key: str, state: str, reason: str, actor: str) -> None:
        self.now += 1
        row = self.rows[kind, key]
        token = row.claim_token if isinstance(row, JobRow) else None
        move = Move(
            kind=kind,
            id=key,
            seq=row.version + 1,
            old=row.status or None,
            new=state,
            reason=reason,
            actor=actor,
            at=self.now,
            token=token,
        )
        self.moves.append(move)
        self.rows[kind, key] = replace(row, status=state, version=row.version + 1)


def a_good_one() -> History:
    """Of everything that may happen to a job, something; of pods, leases and leaders a little."""
    tell = Telling()
    tell.lead("one", 1)
    for worker in ("w1", "w2"):
        tell.spawn(worker)
    for job_id in ("plain", "rescued", "stopped", "again", "twice", "deadly", "broken", "unwanted"):
        tell.submit(job_id)
    tell.submit("later", "scheduled", priority=5)
    tell.claim("plain", "w1")
    tell.start("plain")
    tell.finish("plain")
    tell.claim("rescued", "w1")
    tell.lose("rescued")
    tell.complete("rescued", "w2")
    tell.claim("stopped", "w1")
    tell.start("stopped")
    tell.ask_to_cancel("stopped")
    tell.fail("stopped")
    tell.claim("again", "w1")
    tell.fail("again", "user_error")
    tell.requeue("again")
    tell.complete("again", "w2")
    tell.complete("twice", "w2")
    tell.requeue("twice")
    tell.complete("twice", "w1")
    for worker in ("w1", "w2"):
        tell.claim("deadly", worker)
        tell.lose("deadly")
    for _ in range(2):
        tell.claim("broken", "w1")
        tell.fail("broken")
        tell.due("broken")
    tell.claim("broken", "w1")
    tell.fail("broken")
    tell.cancel("unwanted")
    tell.due("later")
    tell.claim("later", "w1")
    tell.release("later")
    tell.complete("later", "w2")
    tell.lead("two", 2)
    tell.end("w1")
    for number, (memory_mb, exclusive) in enumerate([(8_000, False), (16_000, False), (1_000, True)]):
        if exclusive:
            tell.now += 2
        tell.lease(f"lease-{number}", memory_mb, exclusive=exclusive)
    for number in range(3):
        tell.release_lease(f"lease-{number}")
    others = Pod(name="theirs", born=1)
    tell.pods += [
        replace(others, ours=False),
        Pod(name="orphan", born=5, died=20, orphan=True, ended_by_us=True),
    ]
    return tell.history()
