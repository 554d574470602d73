"""One worker behind a gate of its own, brought to one step in the life of a job, so that somebody can be killed there."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from herdsman.ids import JobId
from herdsman.states import JobStatus
from tests.chaos.holding_proxy import Gate, Hold, When
from tests.chaos.site import Site, handlers


class Victim(Enum):
    SUPERVISOR = "supervisor"
    HANDLER = "handler"
    API = "api"


class Step(Enum):
    REGISTERED = "registered"
    POLLING = "polling"
    CLAIMED = "claimed"
    STARTED = "started"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    LOG = "log"
    FINISHED = "finished"
    REPORTED = "reported"


HOLDS = {
    Step.REGISTERED: ("/workers/register", When.ANSWERED, b""),
    Step.CLAIMED: ("/jobs/claim", When.ANSWERED, b'"job_id"'),
    Step.FINISHED: ("/jobs/finish", When.ASKED, b""),
    Step.REPORTED: ("/jobs/finish", When.ANSWERED, b""),
}
IDLE = (Step.REGISTERED, Step.POLLING)
"""There is no job yet at these; one is handed in afterwards."""


@dataclass
class Lane:
    site: Site
    step: Step
    gate: Gate
    worker: str = ""
    job: JobId | None = None
    _hold: Hold | None = None
    _here: Path = field(default_factory=Path)
    _times: int = 0

    def approach(self, victim: Victim) -> None:
        """Sets out for the step; `arrive` waits until it is there."""
        unregistered = self.step is Step.REGISTERED
        if unregistered and self.worker:
            self.site.pack.kill(self.worker)
        # There is no handler's process before the worker has registered.
        held = HOLDS.get(self.step) if not (unregistered and victim is Victim.HANDLER) else None
        self._hold = None if held is None else self.gate.hold(*held)
        self._times += 1
        self._here = self.site.directory / f"{self.step.value}-{self._times}"
        if unregistered or not self.worker:
            self._start()
        self.job = None if self.step in IDLE else self._submit()

    def arrive(self, victim: Victim) -> None:
        self.site.until(self._reached)
        if victim is Victim.HANDLER:
            self.site.until(lambda: self.site.handlers_of(self.worker))

    def strike(self, victim: Victim) -> None:
        if victim is Victim.SUPERVISOR:
            self._kill_supervisor()
        elif victim is Victim.HANDLER:
            assert self.site.kill_handlers(self.worker) == 1

    def _kill_supervisor(self) -> None:
        """Its job ends with it, though nothing keeps the handler from going on."""
        orphans = self.site.handlers_of(self.worker)
        self.site.pack.kill(self.worker)
        self.site.until(lambda: not set(orphans) & set(handlers(self.site.directory)), patience_s=10)

    def go_on(self, victim: Victim) -> None:
        """What was held here is lost with whoever died, and goes on if both ends live."""
        self._here.with_suffix(".go").touch()
        if self._hold is not None:
            self._hold.let_go(cut=victim is not Victim.HANDLER)
        self.mend()
        self.job = self.job or self._submit()

    def mend(self) -> None:
        """A worker whose handlers die before they are ready for the first time ends, too."""
        if not self.site.pack.alive(self.worker):
            self._start()

    def _start(self) -> None:
        self.worker = self.site.work(self.step.value, self.gate.url)

    def _submit(self) -> JobId:
        return self.site.submit(self.step.value, stay=self.step.value, here=str(self._here))

    def _reached(self) -> bool:
        if self._hold is not None:
            return self._hold.reached.is_set()
        match self.step:
            case Step.REGISTERED:
                return bool(self.site.handlers_of(self.worker))
            case Step.POLLING:
                return self.gate.under_way("/jobs/claim")
            case Step.PROGRESS:
                return self._here.exists() and self._stored_progress()
            case _:
                return self._here.exists()

    def _stored_progress(self) -> bool:
        assert self.job is not None
        job = self.site.job(self.job)
        return job.status is JobStatus.RUNNING and job.progress == 0.5
