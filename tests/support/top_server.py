"""A server in place of a real one, whose fleet stands still: it answers what `herdsman top` sends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any, cast

from herdsman.client import Client
from herdsman.client.call import Call
from herdsman.errors import HerdsmanError
from herdsman.explain.wire import EtaOut, MoveOut, SpanOut, WhyOut
from herdsman.fleet.wire import DrainedOut, FleetOut, FleetWorkerOut, OverviewOut
from herdsman.jobs.wire import AttemptOut, AttemptsOut, CancelOut, JobDetail, JobOut, JobsOut, LogOut, LogsOut
from tests.support.top_fleet import JOBS, NOW, WORKERS, ago, an_overview

PATIENCE_S = 30.0


@dataclass
class FakeServer:
    """Says the same as long as nobody changes it, and keeps what was asked to be done."""

    seen: OverviewOut = field(default_factory=an_overview)
    workers: tuple[FleetWorkerOut, ...] = WORKERS
    jobs: tuple[JobDetail, ...] = JOBS
    log: tuple[str, ...] = ("drawing a herd", "step 1 of 2", "\x1b[31mstep 2\x07 of 2")
    done: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    asked: int = 0
    error: HerdsmanError | None = None
    """With which every question and every order is answered."""
    gate: Event | None = None
    """Until it is set, nothing is answered."""

    @property
    def client(self) -> Client:
        """What `top` is given; it uses nothing of a client but `send`."""
        return cast("Client", self)

    def send(self, call: Call[Any]) -> Any:
        if self.gate is not None:
            assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        match call.method, *call.path.strip("/").split("/"):
            case "GET", "overview":
                self.asked += 1
                return self.seen
            case "GET", "fleet":
                return FleetOut(workers=self.workers, more=0)
            case "GET", "jobs":
                return self._page(call.params)
            case "GET", "jobs", job_id:
                return next(each for each in self.jobs if each.job_id == job_id)
            case "GET", "jobs", _, "attempts":
                return AttemptsOut(attempts=(LOST,))
            case "GET", "jobs", _, "logs":
                return self._logs(cast("str | None", call.params.get("since")))
            case "GET", "jobs", job_id, "eta":
                return _eta(job_id)
            case "GET", "why", kind, named:
                return self.why(kind, named)
            case "POST", ("jobs" | "workers"), named, ("cancel" | "retry" | "drain" as deed):
                self.done.append((deed, named))
                return ENDS[deed](named)
            case _:
                raise AssertionError(f"nobody here answers {call.method} {call.path}")

    def why(self, kind: str, named: str) -> WhyOut:
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
            kind=cast("Any", kind),
            id=named,
            status="running" if kind == "job" else "terminated",
            since=NOW,
            because=because,
            history=moves,
        )

    def _page(self, asked: Mapping[str, Any]) -> JobsOut:
        assert asked.get("after") is None
        states = asked.get("status") or ()
        found = [each for each in self.jobs if not states or each.status in states]
        kept = [each for each in found if asked.get("type") in (None, each.type)][: asked["limit"]]
        return JobsOut(jobs=tuple(JobOut(**_without_payload(each)) for each in kept), next=None)

    def _logs(self, since: str | None) -> LogsOut:
        begin = 0 if since is None else int(since.split(".")[1])
        lines = self.log[begin : begin + 2]
        pieces = (LogOut(claim_token=1, first=begin, ts=NOW, lines=lines),) if lines else ()
        return LogsOut(pieces=pieces, next=f"1.{begin + len(lines)}", ended=False)


LOST = AttemptOut(
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


def _eta(job_id: str) -> EtaOut:
    return EtaOut(
        job_id=job_id,
        status="running",
        position=None,
        start=None,
        finish=SpanOut(p50=8, p80=20),
        basis="31 jobs of this type",
        sample=31,
    )


ENDS: Mapping[str, Callable[[str], object]] = {
    "cancel": lambda job_id: CancelOut(job_id=job_id, status="cancelled"),
    "retry": lambda _: None,
    "drain": lambda worker_id: DrainedOut(worker_id=worker_id, status="terminating", already=False),
}


def _without_payload(job: JobDetail) -> dict[str, Any]:
    return {name: value for name, value in job.model_dump().items() if name in JobOut.model_fields}
