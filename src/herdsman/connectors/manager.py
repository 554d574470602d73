"""Which connector runs which jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from herdsman.connectors.registry import Around, find
from herdsman.core.errors import InvalidSettings
from herdsman.ports import Connector


@dataclass(kw_only=True)
class ConnectorManager:
    """Picks by the type of a job; one that was opened is kept."""

    services: Mapping[str, Mapping[str, Any]]
    """For each type of jobs the name of a connector under `connector`, and its options beside it."""
    around: Around
    _open: dict[str, Connector] = field(default_factory=dict[str, Connector])

    def types(self) -> tuple[str, ...]:
        return tuple(self.services)

    def get(self, job_type: str) -> Connector:
        if job_type not in self._open:
            self._open[job_type] = self._opened(job_type)
        return self._open[job_type]

    def close(self) -> None:
        for connector in self._open.values():
            connector.close()
        self._open.clear()

    def _opened(self, job_type: str) -> Connector:
        options = dict(self.services.get(job_type, {}))
        name = options.pop("connector", None)
        if not isinstance(name, str):
            known = ", ".join(self.services) or "none"
            raise InvalidSettings(f"no connector runs jobs of type {job_type!r}; known types are: {known}")
        return find(name)(options, self.around)
