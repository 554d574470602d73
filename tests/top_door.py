"""A door without a server, behind which the herd stands still."""

from dataclasses import dataclass, field
from threading import Event
from typing import Any

from herdsman.cli.look_door import Kind
from herdsman.core.errors import HerdsmanError
from herdsman.core.model import JobFilter
from herdsman.core.states import JobState
from herdsman.wire.explain import EtaOut, MoveOut, SpanOut, WhyOut
from herdsman.wire.fleet import DrainedOut, HerdOut, HerdWorkerOut, OverviewOut
from herdsman.wire.jobs import AttemptOut, AttemptsOut, JobDetail, JobOut, JobsOut, LogOut, LogsOut, RetryIn
from tests.top_herd import JOBS, NOW, WORKERS, ago, an_overview

PATIENCE_S = 30.0


@dataclass
class FakeDoor:
    """Says the same as long as nobody changes it, and keeps what was asked to be done."""

    seen: OverviewOut = field(default_factory=an_overview)
    workers: tuple[HerdWorkerOut, ...] = WORKERS
    jobs: tuple[JobDetail, ...] = JOBS
    log: tuple[str, ...] = ("drawing a herd", "step 1 of 2", "\x1b[31mstep 2\x07 of 2")
    done: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    asked: int = 0
    error: HerdsmanError | None = None
    """With which every question and every order is answered."""
    gate: Event | None = None
    """Until it is set, nothing is answered."""

    def overview(self) -> OverviewOut:
        self._answer()
        self.asked += 1
        return self.seen

    def herd(self) -> HerdOut:
        self._answer()
        return HerdOut(workers=self.workers, more=0)

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut:
        self._answer()
        assert after is None
        found = [each for each in self.jobs if not wanted.states or JobState(each.status) in wanted.states]
        kept = [each for each in found if wanted.type in (None, each.type)][:limit]
        return JobsOut(jobs=tuple(JobOut(**_without_payload(each)) for each in kept), next=None)

    def look(self, job_id: str) -> JobDetail:
        self._answer()
        return next(each for each in self.jobs if each.job_id == job_id)

    def attempts(self, job_id: str) -> AttemptsOut:  # noqa: ARG002
        self._answer()
        lost = AttemptOut(
            attempt=1,
            claim_token=1,
            worker_id="gpu-8",
            pool="default",
            claimed_at=ago(minutes=2),
            started_at=ago(minutes=2),
            ended_at=ago(seconds=50),
            outcome="interrupted",
            reason="worker_lost",
            failure_class=None,
            error="no sign of life for 60 s",
        )
        return AttemptsOut(attempts=(lost,))

    def logs(self, job_id: str, since: str | None) -> LogsOut:  # noqa: ARG002
        self._answer()
        begin = 0 if since is None else int(since.split(".")[1])
        lines = self.log[begin : begin + 2]
        pieces = (LogOut(claim_token=1, first=begin, ts=NOW, lines=lines),) if lines else ()
        return LogsOut(pieces=pieces, next=f"1.{begin + len(lines)}", ended=False)

    def why(self, kind: Kind, named: str) -> WhyOut:
        self._answer()
        moves = (
            MoveOut(
                ts=ago(minutes=3),
                from_status=None,
                to_status="pending",
                reason="submitted",
                actor="agent:default",
            ),
            MoveOut(
                ts=ago(minutes=2),
                from_status="pending",
                to_status="running",
                reason="started",
                actor="worker:gpu-8",
            ),
        )
        because = (f"this {kind} runs on a worker that lives", "it was interrupted once")
        return WhyOut(
            kind=kind,
            id=named,
            state="running" if kind == "job" else "terminated",
            since=NOW,
            because=because,
            history=moves,
        )

    def eta(self, job_id: str) -> EtaOut:
        self._answer()
        return EtaOut(
            job_id=job_id,
            status="running",
            position=None,
            start=None,
            finish=SpanOut(p50=8, p80=20),
            basis="31 jobs of this type",
            sample=31,
        )

    def cancel(self, job_id: str) -> str:
        self._act("cancel", job_id)
        return "cancelled"

    def retry(self, job_id: str, wanted: RetryIn) -> None:
        assert not wanted.edit
        self._act("retry", job_id)

    def drain_worker(self, worker_id: str) -> DrainedOut:
        self._act("drain", worker_id)
        return DrainedOut(worker_id=worker_id, status="terminating", already=False)

    def _act(self, what: str, name: str) -> None:
        self._answer()
        self.done.append((what, name))

    def _answer(self) -> None:
        if self.gate is not None:
            assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error


def _without_payload(job: JobDetail) -> dict[str, Any]:
    return {name: value for name, value in job.model_dump().items() if name in JobOut.model_fields}
