"""A simulated external service: it renders what it is given, forgets, and is unavailable at times."""

from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Any, cast

from herdsman.errors import ServiceUnavailable, SubmissionUnknown
from herdsman.jobs import protocol
from herdsman.jobs.model import Failure, FailureClass
from herdsman.testing.simulation.checks.history import Rendering
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.world import World

AWAY_S = (1.0, 40.0)


@dataclass
class WorldService:
    world: World
    renderings: dict[str, Rendering] = field(default_factory=dict[str, Rendering])
    """By the ids that the service knows."""
    results: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])
    away_until: float = 0.0

    def unfit(self) -> dict[str, str]:
        return {"remote": "the service does not answer"} if self.away_until > self.world.now else {}

    def reach(self) -> None:
        world = self.world
        world.scheduler.sleep(world.random.expovariate(1 / 0.01))
        if world.strikes(Fault.SERVICE_AWAY):
            self.away_until = world.until(world.now + world.random.uniform(*AWAY_S))
        if world.strikes(Fault.SERVICE_FORGETS):
            for each in self.renderings.values():
                each.over_at = min(each.over_at, world.now)
            self.renderings.clear()
        if self.away_until > world.now:
            raise ServiceUnavailable("the service does not answer")

    def render(self, job: protocol.ServiceJob, external_id: str) -> None:
        if external_id in self.renderings:
            return
        world, payload = self.world, cast("dict[str, Any]", job.payload)
        rendering = Rendering(job_id=job.job_id, began=world.now, ends_at=world.now + float(payload["seconds"]))
        self.renderings[external_id] = rendering
        self.results[external_id] = {"of": job.job_id, "number": payload["number"]}
        world.books.renderings.append(rendering)


@dataclass
class WorldConnector:
    world: World
    service: WorldService
    name: str = "world"
    capabilities: protocol.Capabilities = field(default_factory=protocol.Capabilities)

    def submit(self, job: protocol.ServiceJob, external_id: str) -> str:
        self.service.reach()
        if self.world.strikes(Fault.SERVICE_VANISHED):
            raise SubmissionUnknown("the submission got no answer")
        self.service.render(job, external_id)
        if self.world.strikes(Fault.SERVICE_UNANSWERED):
            raise SubmissionUnknown("the submission got no answer")
        return external_id

    def attach(self, job: protocol.ServiceJob, external_id: str) -> None:
        del job, external_id
        self.service.reach()

    def listen(self, external_id: str, silence: timedelta) -> protocol.Heard | None:
        world, known = self.world, self.service.renderings.get(external_id)
        ends_at = inf if known is None else known.ends_at
        began = world.now
        # What was said before, or missed, is not said again.
        left = ends_at - began if ends_at > began else inf
        world.scheduler.sleep(min(silence.total_seconds(), left))
        heard = began < ends_at <= world.now and self.service.away_until <= world.now
        return protocol.Ended() if heard and not world.strikes(Fault.SERVICE_MUTE) else None

    def check(self, external_id: str) -> protocol.Verdict:
        self.service.reach()
        known = self.service.renderings.get(external_id)
        if known is None:
            return protocol.Unknown("the service does not know it")
        if known.cancelled:
            failure = Failure(kind=FailureClass.INFRASTRUCTURE, error="it was interrupted")
            return protocol.Broken(failure=failure, cancelled=True)
        if known.ends_at <= self.world.now:
            return protocol.Finished(outputs=self.service.results[external_id])
        return protocol.Working(position=0)

    def fetch(self, job: protocol.ServiceJob, external_id: str, finished: protocol.Finished) -> Any:
        del job, external_id
        self.service.reach()
        return finished.outputs

    def cancel(self, external_id: str) -> None:
        self.service.reach()
        known = self.service.renderings.get(external_id)
        if known is not None and known.ends_at > self.world.now:
            known.cancelled, known.over_at = True, self.world.now

    def fitness(self) -> protocol.Fitness:
        return protocol.Fitness(fault=self.service.unfit().get("remote"))

    def close(self) -> None:
        """There is nothing to close."""
