"""What a handler's process has to know of the services around it: sent by its supervisor, as JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from herdsman.connectors.manager import ConnectorManager
from herdsman.connectors.registry import Around
from herdsman.core.errors import HerdsmanError
from herdsman.ports import Clock, SystemClock
from herdsman.results import ResultOptions, open_store
from herdsman.worker.context import JobContext
from herdsman.worker.registry import Handler, HandlerSpec, UnusableHandler
from herdsman.worker.service.monitor import Watching
from herdsman.worker.service.run import ServiceRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    services: Mapping[str, Mapping[str, Any]]
    results: ResultOptions
    watching: Watching = field(default_factory=Watching)

    def to_json(self) -> str | None:
        """For the one process that speaks to services; None where there are none."""
        if not self.services:
            return None
        spans = {name: span.total_seconds() for name, span in asdict(self.watching).items()}
        said = {"services": self.services, "results": asdict(self.results), "watching": spans}
        return json.dumps(said)


def handlers_of(text: str) -> Iterator[tuple[str, Handler]]:
    """The jobs that run on external services, in the handler's own process."""
    try:
        runner = ServiceRunner(read(text))
        for kind in runner.types():
            yield f"the connector for {kind}", Handler(spec=HandlerSpec(type=kind), run=runner.run)
    except HerdsmanError as error:
        raise UnusableHandler(str(error)) from error


def read(text: str) -> Outside:
    said = json.loads(text)
    spans = {name: timedelta(seconds=span) for name, span in said["watching"].items()}
    return Outside(
        services=said["services"],
        results=ResultOptions(**said["results"]),
        watching=Watching(**spans),
    )


class ServiceRunner:
    """Runs the jobs of all services, one after the other."""

    def __init__(self, outside: Outside, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._watching = outside.watching
        self._job: JobContext | None = None
        around = Around(clock=self._clock, results=open_store(outside.results), say=self._say)
        self._manager = ConnectorManager(services=outside.services, around=around)

    def types(self) -> Iterator[str]:
        """Each opened once, so that wrong options are known before the first job."""
        for kind in self._manager.types():
            self._manager.get(kind)
            yield kind

    def run(self, job: JobContext) -> object:
        self._job = job
        try:
            return ServiceRun(
                job=job, connector=self._manager.get(job.type), watching=self._watching, clock=self._clock
            ).run()
        finally:
            self._job = None

    def _say(self, line: str) -> None:
        if self._job is not None:
            self._job.log(line)
