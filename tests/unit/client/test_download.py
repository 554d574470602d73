"""Saving a file of a job: tried again where that helps, and nothing half is left."""

from pathlib import Path

import httpx
import pytest

from herdsman.errors import InvalidRequest, NotFound, Unreachable
from herdsman.jobs.wire import sha256_of
from herdsman.wire import MEDIA_TYPE, VERSION_HEADER, problem
from tests.unit.client.local_server import Served

OURS = {VERSION_HEADER: "1"}
NOT_ENDED = httpx.Response(
    409,
    text=problem(409, "not-finished", "it runs").model_dump_json(),
    headers={"content-type": MEDIA_TYPE, **OURS},
)


def a_problem(status: int, code: str) -> httpx.Response:
    text = problem(status, code, "so it is").model_dump_json()
    return httpx.Response(status, text=text, headers={"content-type": MEDIA_TYPE, **OURS})


def a_file(content: bytes = b"cat") -> httpx.Response:
    return httpx.Response(200, content=content, headers=OURS)


def test_a_file_is_asked_for_again_when_the_way_is_broken(tmp_path: Path) -> None:
    served = Served(
        NOT_ENDED,
        httpx.ReadError("cut"),
        a_problem(503, "results-unavailable"),
        a_problem(429, "too-many"),
        a_file(),
    )
    with served.client() as client:
        saved = client.download("j1", "a b#.png", tmp_path)
    assert saved.read_bytes() == b"cat"
    assert served.paths[1:] == ["GET /jobs/j1/files/a%20b%23.png"] * 4
    assert [each.name for each in tmp_path.iterdir()] == ["a b#.png"]


def test_patience_has_an_end(tmp_path: Path) -> None:
    served = Served(NOT_ENDED, httpx.ReadError("cut"))
    with served.client(patience=5) as client, pytest.raises(Unreachable):
        client.download("j1", "a.png", tmp_path)
    assert len(served.requests) > 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_asked_for_once(tmp_path: Path) -> None:
    served = Served(NOT_ENDED, a_problem(404, "not-found"))
    with served.client() as client, pytest.raises(NotFound):
        client.download("j1", "a.png", tmp_path)
    assert len(served.requests) == 2


def test_a_page_of_a_stranger_is_no_file(tmp_path: Path) -> None:
    served = Served(NOT_ENDED, httpx.Response(200, html="<p>Log in</p>"))
    with served.client(patience=0) as client, pytest.raises(Unreachable, match="not an answer of Herdsman"):
        client.download("j1", "a.png", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../a.png", "a/b.png", "..\\a.png", ".hidden"])
def test_a_name_that_is_a_path_is_refused_before_anything_is_sent(tmp_path: Path, name: str) -> None:
    served = Served(NOT_ENDED)
    with served.client() as client, pytest.raises(InvalidRequest, match="name of a file"):
        client.download("j1", name, tmp_path)
    assert served.requests == []


@pytest.mark.parametrize(
    "result",
    [
        None,
        7,
        [],
        {},
        {"outputs": None},
        {"outputs": {"name": "a"}},
        {"outputs": [1, None, {}, {"name": "b", "sha256": "0" * 64}]},
        {"outputs": [{"name": "a"}]},
        {"outputs": [{"name": "a", "sha256": 'x"\r\nX: y'}]},
    ],
)
def test_a_result_may_be_anything_and_then_tells_no_sum(result: object) -> None:
    assert sha256_of(result, "a") is None


def test_a_result_tells_the_sum_of_its_file() -> None:
    assert sha256_of({"outputs": [{"name": "b"}, {"name": "a", "sha256": "0" * 64}]}, "a") == "0" * 64
