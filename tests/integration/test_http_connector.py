"""The http connector against a service that answers later, calls back, or answers at once."""

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import httpx
import pytest

from herdsman.connectors.http import open_connector
from herdsman.connectors.registry import find
from herdsman.errors import ServiceRejected
from herdsman.jobs.protocol import Ended, Finished, ServiceJob, Unknown, Working
from herdsman.ports import Connector
from herdsman.testing.connector_contract import ConnectorContract
from tests.support.http_options import (
    NOBODY,
    QUICK,
    a_job,
    around,
    both,
    called_back,
    numbered,
    opened,
    polled,
    sync,
)
from tests.support.http_service import PICTURE, FakeHttpService, Fault, wait_for


@pytest.fixture
def service() -> Iterator[FakeHttpService]:
    with FakeHttpService() as running:
        yield running


class HttpContract(ConnectorContract):
    service: FakeHttpService

    def options(self, url: str) -> dict[str, object]:
        return polled(url)

    @pytest.fixture
    def connector(self, service: FakeHttpService) -> Iterator[Connector]:
        self.service = service
        with opened(self.options(service.url)) as connector:
            yield connector

    def good_job(self) -> ServiceJob:
        return a_job(do="good")

    def bad_job(self) -> ServiceJob:
        return a_job(do="bad")

    def long_job(self) -> ServiceJob:
        return a_job(do="long")

    def release(self) -> None:
        self.service.release()

    def another(self) -> Connector:
        return open_connector(self.options(self.service.url), around())

    def unreachable(self) -> Connector:
        return open_connector(self.options(NOBODY), around())

    def times_run(self, external_id: str) -> int:
        return self.service.jobs[external_id].runs


class TestPolledService(HttpContract):
    def forget(self, external_id: str) -> bool:
        self.service.forget(external_id)
        return True


class TestServiceWithItsOwnIds(TestPolledService):
    def options(self, url: str) -> dict[str, object]:
        return numbered(url)

    def new_id(self) -> str:
        return str(uuid4().int)


class TestServiceThatCallsBackOnly(HttpContract):
    def options(self, url: str) -> dict[str, object]:
        return called_back(url)


class TestServiceThatCallsBackAndCanBeAsked(TestPolledService):
    def options(self, url: str) -> dict[str, object]:
        return both(url)


class TestServiceThatAnswersAtOnce(HttpContract):
    def options(self, url: str) -> dict[str, object]:
        return sync(url)


def test_it_is_found_by_its_name() -> None:
    assert find("http") is open_connector


def test_files_are_fetched_into_the_result_store(service: FakeHttpService) -> None:
    with opened(polled(service.url)) as connector:
        job = a_job(do="good", text="two pictures")
        connector.submit(job, "x-1")
        verdict = connector.check("x-1")
        assert isinstance(verdict, Finished)
        assert verdict.seconds == 1.5
        result = connector.fetch(job, "x-1", verdict)
    found = cast("dict[str, Any]", result)
    assert found["result"] == "two pictures"
    assert [(each["name"], each["bytes"]) for each in found["files"]] == [
        ("a.png", len(PICTURE)),
        ("b.png", len(PICTURE)),
    ]


def test_a_running_job_shows_its_progress(service: FakeHttpService) -> None:
    with opened(polled(service.url)) as connector:
        connector.submit(a_job(do="long"), "x-1")
        assert connector.check("x-1") == Working(done=0.5, note="running", position=0)
        assert connector.listen("x-1", QUICK) == Working(done=0.5, note="running", position=0)
        assert connector.listen("x-1", QUICK) is None, "nothing has changed"


def test_a_job_is_handed_over_under_its_id_with_the_keys_of_the_operator(service: FakeHttpService) -> None:
    options = {**polled(service.url), "headers": {"Authorization": "Bearer secret"}}
    with opened(options) as connector:
        connector.submit(a_job(do="good"), "x-1")
    assert service.requests[0].headers["idempotency-key"] == "x-1"
    assert service.requests[0].headers["authorization"] == "Bearer secret"
    assert service.requests[0].body == {"do": "good"}


def test_an_address_in_a_payload_reaches_no_private_place(service: FakeHttpService) -> None:
    options = {
        **polled("http://example.com"),
        "submit": {"url": "{payload.where}"},
        "headers": {"X-Key": "secret"},
    }
    with opened(options) as connector, pytest.raises(ServiceRejected, match="must not be reached") as caught:
        connector.submit(a_job(where=f"{service.url}/jobs"), "x-1")
    assert not caught.value.retry
    assert service.requests == []


def test_an_address_in_an_answer_reaches_no_private_place_and_gets_no_keys(service: FakeHttpService) -> None:
    options = {**polled(service.url), "headers": {"X-Key": "secret"}}
    with FakeHttpService() as other:
        answer = {"state": "done", "output": {"text": "fine", "files": [f"{other.url}/files/a.png"]}}
        finished = Finished(outputs={"answer": answer})
        with opened(options) as connector, pytest.raises(ServiceRejected, match="must not be reached"):
            connector.fetch(a_job(), "x-1", finished)
        with opened({**options, "allow_hosts": [other.url.removeprefix("http://")]}) as connector:
            connector.fetch(a_job(), "x-1", finished)
        assert ["x-key" in seen.headers for seen in other.requests] == [False]


def test_a_result_that_is_not_where_the_options_say_is_told(service: FakeHttpService) -> None:
    options = {**polled(service.url), "result": {"path": "$.nowhere"}}
    with opened(options) as connector:
        connector.submit(a_job(do="good"), "x-1")
        verdict = connector.check("x-1")
        assert isinstance(verdict, Finished)
        with pytest.raises(ServiceRejected, match=r"\$\.nowhere") as caught:
            connector.fetch(a_job(), "x-1", verdict)
    assert caught.value.retry


def test_a_result_may_be_at_an_address_that_the_answer_names(service: FakeHttpService) -> None:
    options = {**polled(service.url), "result": {"url": "$.link", "path": "$.text"}}
    with opened(options) as connector:
        connector.submit(a_job(do="good", text="found"), "x-1")
        finished = Finished(outputs={"answer": {"link": "/jobs/x-1/result"}})
        assert connector.fetch(a_job(), "x-1", finished) == "found"


def test_a_callback_is_heard_at_once_and_is_only_a_hint_where_the_service_can_be_asked(
    service: FakeHttpService,
) -> None:
    with opened(both(service.url)) as connector:
        connector.submit(a_job(do="long"), "x-1")
        wait_for(lambda: connector.listen("x-1", QUICK) is None)
        url = service.jobs["x-1"].callback
        assert url is not None
        assert httpx.post(url, json={"state": "done"}).status_code == 204
        assert connector.listen("x-1", timedelta(seconds=20)) == Ended()
        assert isinstance(connector.check("x-1"), Working), "the service itself says otherwise"


def test_what_is_posted_after_the_end_changes_nothing(service: FakeHttpService) -> None:
    with opened(called_back(service.url)) as connector:
        connector.submit(a_job(do="long"), "x-1")
        url = service.jobs["x-1"].callback
        assert url is not None
        for state in ("done", "running", "failed"):
            assert httpx.post(url, json={"state": state}).status_code == 204
        assert isinstance(connector.check("x-1"), Finished)
        assert connector.listen("x-1", QUICK) == Ended(), "the look has swallowed the news"
        assert isinstance(connector.check("x-1"), Finished)


def test_the_door_for_callbacks_opens_to_its_own_path_only_and_closes(service: FakeHttpService) -> None:
    with opened(called_back(service.url)) as connector:
        connector.submit(a_job(do="long"), "x-1")
        url = service.jobs["x-1"].callback
        assert url is not None
        address = httpx.URL(url)
        assert len(address.path) > 40
        assert httpx.post(str(address.copy_with(path="/")), json={"state": "done"}).status_code == 404
        assert httpx.post(url, content=b"<html>").status_code == 400
        assert httpx.post(url, content=iter([b"{}"])).status_code == 413, "a body whose size nobody tells"
        assert isinstance(connector.check("x-1"), Working)
        connector.close()
        assert isinstance(connector.check("x-1"), Unknown)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address.host, address.port or 0), timeout=5)


def test_fitness_tells_what_the_health_address_says(service: FakeHttpService) -> None:
    with opened({**polled(service.url), "health": f"{service.url}/"}) as connector:
        assert connector.fitness().fault is None
        service.add_fault(Fault.SERVER_ERROR)
        assert "500" in (connector.fitness().fault or "")
