"""One job through a ComfyUI that misbehaves by a seed: which faults, where, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, cast

from herdsman.context import Services
from herdsman.errors import HerdsmanError
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import submit_job
from herdsman.jobs.model import Claim, Failure, FailureClass, NewJob
from herdsman.jobs.protocol import ClaimRequest, Done, Ending, Failed, MarkStatus, ServiceMark
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import finish_jobs, mark_service
from herdsman.ports import SystemClock
from herdsman.testing.fakes.comfyui import STEPS, FakeComfyUI, Fault
from herdsman.worker.context import JobContext, Recovered, failure_message
from herdsman.worker.service_run import ServiceRun
from tests.support.comfyui import QUICK, a_connector, workflow
from tests.support.databases import MovingClock

SPEED = 20.0
ATTEMPTS = 9
MESSAGES = [step for step in STEPS if step not in ("queued", "history", "done")]
ROUTES = ("/prompt", "/queue", "/history", "/view", "/ws", "/api/jobs")
VERSIONS = ("0.3.60", "0.7.0", "0.7.0")
BY_MESSAGE = (Fault.COMPLETION_NEVER_SENT, Fault.CUT_SOCKET, Fault.DEAF_SOCKET, Fault.DUPLICATE_CLIENT)
BY_ROUTE = (Fault.SLOW_HTTP, Fault.HTML, Fault.TOO_MANY, Fault.SERVER_ERROR)
BY_JOB = (
    Fault.NODE_ERROR,
    Fault.NO_HISTORY_YET,
    Fault.ERROR_AFTER_QUEUEING,
    Fault.ERROR_BEFORE_QUEUEING,
    Fault.CLOSED_PROMPT,
    Fault.VIEW_MISSING,
)
EVERY = (*BY_MESSAGE, *BY_ROUTE, *BY_JOB, Fault.RESTART)


@dataclass(frozen=True)
class Plan:
    fault: Fault
    at: str | None
    times: int
    details: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.fault}@{self.at} x{self.times}"


def plans(chance: Random) -> list[Plan]:
    return [_plan(chance, fault) for fault in chance.sample(EVERY, chance.choice((1, 1, 2, 3)))]


def _plan(chance: Random, fault: Fault) -> Plan:
    times = chance.choice((1, 1, 2))
    if fault in BY_MESSAGE:
        at = None if fault is Fault.COMPLETION_NEVER_SENT else chance.choice([*MESSAGES, "1", "5"])
        return Plan(fault, at, times, {})
    if fault in BY_ROUTE:
        details = {"seconds": 30.0} if fault is Fault.SLOW_HTTP else {}
        return Plan(fault, chance.choice(ROUTES), times, details)
    if fault is Fault.RESTART:
        return Plan(fault, chance.choice(STEPS), 1, {"down_s": chance.choice((0.5, 10.0))})
    seconds = {Fault.NO_HISTORY_YET: 4.0, Fault.CLOSED_PROMPT: 30.0}.get(fault)
    return Plan(fault, None, times, {} if seconds is None else {"seconds": seconds})


@dataclass
class Storm:
    """What became of one job, and what the service really did for it."""

    services: Services
    moving: MovingClock
    files: Path
    seed: int

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.plans = plans(self.chance)
        self.job_id = JobId(f"storm-{self.seed}")
        self.variant = self.seed % 7
        self.lines: list[str] = []
        self.marks: list[tuple[str, str]] = []

    def ride(self) -> FakeComfyUI:
        with FakeComfyUI(seed=self.seed, speed=SPEED, version=self.chance.choice(VERSIONS)) as fake:
            for plan in self.plans:
                fake.add_fault(plan.fault, times=plan.times, at=plan.at, **dict(plan.details))
            payload = {"workflow": workflow(self.variant)}
            new = NewJob(type="comfyui", payload=payload, job_id=self.job_id, max_attempts=ATTEMPTS)
            submit_job(self.services, new)
            for number in range(ATTEMPTS + 1):
                if not self._attempt(fake, WorkerId(f"w{number % 2 + 1}")):
                    break
        return fake

    def _attempt(self, fake: FakeComfyUI, worker: WorkerId) -> bool:
        self.moving.advance(timedelta(minutes=10))  # past any backoff
        stage_due_jobs(self.services)
        claims = claim_for(self.services, {worker: ClaimRequest(types=("comfyui",), begin=True)})
        for claim in claims:
            finish_jobs(self.services, worker, [self._run(fake, claim)], None)
        return bool(claims)

    def _run(self, fake: FakeComfyUI, claim: Claim) -> Ending:
        connector = a_connector(fake.url, self.files, timeout_s=0.7)
        job = JobContext(
            type=claim.type,
            payload=claim.payload,
            job_id=claim.key.job_id,
            attempt=claim.attempt,
            token=claim.key.token,
            service_job_id=claim.service_job_id,
            link=Wire(self, claim),
        )
        try:
            result = ServiceRun(job=job, connector=connector, watching=QUICK, clock=SystemClock()).run()
        except Exception as error:  # noqa: BLE001  as a handler's process does
            failure = failure_message(error)
            said = failure["failure"]
            known = FailureClass(said) if said in set(FailureClass) else FailureClass.JOB_ERROR
            self.lines.append(f"attempt {claim.attempt}: {said}: {failure['error'][:300]}")
            return Failed(claim.key, Failure(kind=known, error=failure["error"]))
        match result:
            case Recovered():
                return Done(claim.key, result.result, timedelta(seconds=result.seconds))
            case Failure():
                self.lines.append(f"attempt {claim.attempt}: {result}")
                return Failed(claim.key, result)
            case _:
                return Done(claim.key, result)


@dataclass
class Wire:
    """From a handler to the database, without processes in between."""

    storm: Storm
    claim: Claim

    def tell(self, job_id: str, word: Mapping[str, object]) -> None:  # noqa: ARG002
        if "log" in word:
            self.storm.lines.append(str(word["log"]))

    def ask(self, job_id: str, word: Mapping[str, Any]) -> Any:  # noqa: ARG002
        mark = ServiceMark(external_id=word["service"]["id"], status=MarkStatus(word["service"]["status"]))
        self.storm.marks.append((mark.external_id, mark.status.value))
        try:
            return mark_service(self.storm.services, self.claim.key, mark)
        except HerdsmanError as error:
            raise AssertionError(f"a mark was refused: {error}") from error

    def cancelled(self, job_id: str) -> bool:  # noqa: ARG002
        return False

    def why_stopped(self, job_id: str) -> str | None:  # noqa: ARG002
        return None


def hashes(result: object) -> list[str]:
    return [each["sha256"] for each in cast("dict[str, Any]", result)["outputs"]]
