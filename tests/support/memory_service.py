"""A service in this very process, and a connector to it as somebody would write it: a plain class."""

import time
from collections.abc import Mapping
from datetime import timedelta

from herdsman.connectors.registry import Around
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import (
    Broken,
    Capabilities,
    Ended,
    Finished,
    Fitness,
    Heard,
    ServiceJob,
    Unknown,
    Verdict,
    Working,
)


class MemoryService:
    """Jobs say what becomes of them: `good`, `bad`, or `long` until they are released."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.runs: dict[str, int] = {}

    def take(self, external_id: str, kind: str) -> None:
        self.jobs[external_id] = kind
        self.runs[external_id] = self.runs.get(external_id, 0) + 1

    def release(self) -> None:
        self.jobs = {each: "good" if kind == "long" else kind for each, kind in self.jobs.items()}


SERVICES: dict[str, MemoryService] = {}


class MemoryConnector:
    name = "memory"
    capabilities = Capabilities()

    def __init__(self, options: Mapping[str, object], around: Around) -> None:
        self._service = SERVICES[str(options["service"])]
        self._around = around

    def submit(self, job: ServiceJob, external_id: str) -> str:
        self._service.take(external_id, str(job.payload))
        return external_id

    def attach(self, job: ServiceJob, external_id: str) -> None:
        """Nothing is needed to hear of a job."""

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        deadline = time.monotonic() + silence.total_seconds()
        while isinstance(self.check(external_id), Working):
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.01)
        return Ended()

    def check(self, external_id: str) -> Verdict:
        match self._service.jobs.get(external_id):
            case "good":
                return Finished(outputs={"text": "done"})
            case "long":
                return Working(done=0.5)
            case "bad":
                return Broken(failure=Failure(kind=FailureClass.JOB_ERROR, error="it was bad"))
            case "cancelled":
                failure = Failure(kind=FailureClass.INTERRUPTED, error="it was stopped")
                return Broken(failure=failure, cancelled=True)
            case _:
                return Unknown(f"there is no job {external_id}")

    def fetch(self, job: ServiceJob, external_id: str, finished: Finished) -> object:
        stored = self._around.results.put(job.job_id, f"{external_id}.txt", [str(finished.outputs["text"]).encode()])
        return {"uri": stored.uri, "sha256": stored.sha256}

    def cancel(self, external_id: str) -> None:
        if self._service.jobs.get(external_id) == "long":
            self._service.jobs[external_id] = "cancelled"

    def fitness(self) -> Fitness:
        return Fitness(version="1")

    def close(self) -> None:
        pass


class Unfinished:
    """Somebody has begun to write a connector."""

    name = "unfinished"

    def __init__(self, options: Mapping[str, object], around: Around) -> None:
        pass

    def submit(self, job: ServiceJob, external_id: str) -> str:
        return f"{job.job_id}-{external_id}"
