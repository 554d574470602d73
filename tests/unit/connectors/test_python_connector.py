"""A connector that somebody wrote as a plain class keeps the same promises."""

from uuid import uuid4

import pytest

from herdsman.connectors.python import open_connector
from herdsman.connectors.registry import Around, find
from herdsman.errors import InvalidSettings
from herdsman.jobs.protocol import ServiceJob
from herdsman.ports import Connector, SystemClock
from herdsman.testing.connector_contract import ConnectorContract
from tests.support.memory_results import MemoryResults
from tests.support.memory_service import SERVICES, MemoryService


def around() -> Around:
    return Around(clock=SystemClock(), results=MemoryResults())


def a_job(payload: str) -> ServiceJob:
    return ServiceJob(job_id="job-1", type="memory", payload=payload)


class TestPythonConnector(ConnectorContract):
    service: MemoryService
    key: str

    @pytest.fixture
    def connector(self) -> Connector:
        self.key = uuid4().hex
        self.service = SERVICES[self.key] = MemoryService()
        return self._opened()

    def good_job(self) -> ServiceJob:
        return a_job("good")

    def bad_job(self) -> ServiceJob:
        return a_job("bad")

    def long_job(self) -> ServiceJob:
        return a_job("long")

    def release(self) -> None:
        self.service.release()

    def another(self) -> Connector:
        return self._opened()

    def forget(self, external_id: str) -> bool:
        del self.service.jobs[external_id]
        return True

    def times_run(self, external_id: str) -> int:
        return self.service.runs[external_id]

    def _opened(self) -> Connector:
        return open_connector({"class": "tests.support.memory_service:MemoryConnector", "service": self.key}, around())


def test_it_is_found_by_its_name() -> None:
    assert find("python") is open_connector


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "option class is None"),
        ("tests.support.memory_service", "MODULE:CLASS"),
        ("no.such.module:Thing", "cannot be imported"),
        ("tests.support.memory_service:Nothing", "has no class 'Nothing'"),
        ("tests.support.memory_service:SERVICES", "has no class 'SERVICES'"),
    ],
)
def test_a_class_that_is_not_there_is_named(value: object, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        open_connector({"class": value}, around())


def test_everything_that_a_class_lacks_is_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_connector({"class": "tests.support.memory_service:Unfinished"}, around())
    lacking = "attach, listen, check, fetch, cancel, fitness, close, capabilities"
    assert f"lacks {lacking};" in str(caught.value)
