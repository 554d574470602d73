"""The ComfyUI connector keeps what every connector promises, with old servers and newer ones."""

import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import httpx
import pytest

from herdsman.connectors.comfyui import open_connector
from herdsman.connectors.registry import Around
from herdsman.jobs.protocol import ServiceJob
from herdsman.ports import Connector, SystemClock
from herdsman.testing.connector_contract import ConnectorContract
from herdsman.testing.fakes.comfyui import FakeComfyUI
from herdsman.testing.fakes.comfyui.execution import Life
from tests.support.comfyui_workflows import a_job, one_node, render
from tests.support.memory_results import MemoryResults

NOBODY = "http://127.0.0.1:9"
LOOK_S = 0.02


def opened(url: str) -> Connector:
    return open_connector({"url": url}, Around(clock=SystemClock(), results=MemoryResults()))


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nodes that sleep lightly sleep until it is opened."""
    released = threading.Event()
    sleep = Life.sleep_unless_interrupted

    def sleep_until_released(life: Life, seconds: float) -> None:
        while not released.is_set():
            sleep(life, LOOK_S)
        del seconds

    monkeypatch.setattr(Life, "sleep_unless_interrupted", sleep_until_released)
    return released


class TestComfyUI(ConnectorContract):
    fake: FakeComfyUI
    gate: threading.Event
    numbers: Iterator[int]

    @pytest.fixture(params=["0.3.45", "0.3.57", "0.7.0", "0.26.0"])
    def connector(self, request: pytest.FixtureRequest, gate: threading.Event) -> Iterator[Connector]:
        self.gate, self.numbers = gate, count(1)
        with FakeComfyUI(version=request.param) as self.fake, closing(opened(self.fake.url)) as connector:
            yield connector

    def good_job(self) -> ServiceJob:
        return a_job(render())

    def bad_job(self) -> ServiceJob:
        return a_job(one_node("HerdsmanFail", message="it went wrong"))

    def long_job(self) -> ServiceJob:
        """Each one unlike the others: what is in the cache takes no time."""
        number = next(self.numbers)
        return a_job({**render(seed=number), **one_node("HerdsmanInterruptible", seconds=number)})

    def release(self) -> None:
        self.gate.set()

    def another(self) -> Connector:
        return opened(self.fake.url)

    def unreachable(self) -> Connector:
        return opened(NOBODY)

    def forget(self, external_id: str) -> bool:
        httpx.post(f"{self.fake.url}/history", json={"delete": [external_id]}).raise_for_status()
        return True

    def times_run(self, external_id: str) -> int:
        return self.fake.renders(external_id)
