"""Stopping, forgetting and restarting the fake ComfyUI, in several versions."""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError

from herdsman.testing.fakes.comfyui import FakeComfyUI
from tests.support.comfyui_client import (
    Talk,
    a_picture,
    next_message,
    node,
    short,
    talking,
    until,
    until_the_end,
)

HOUR = 3600


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(speed=50) as talk:
        yield talk


def long() -> dict[str, Any]:
    return {
        "0": node("HerdsmanText", text="before"),
        "1": node("HerdsmanInterruptible", seconds=HOUR, anything=["0", 0]),
        "2": node("SaveImage", images=["1", 0], filename_prefix="long"),
    }


def interrupt(talk: Talk, prompt_id: str) -> httpx.Response:
    return talk.http.post("/interrupt", json={"prompt_id": prompt_id})


def test_an_interrupted_job_is_an_error_with_what_was_done_before(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(long())
        until(socket, "executing", node="1")
        answer = interrupt(talk, prompt_id)
        heard = until_the_end(socket, prompt_id)
    assert (answer.status_code, answer.content) == (200, b"")
    told = next(m["data"] for m in heard if m["type"] == "execution_interrupted")
    assert (told["node_id"], told["node_type"], told["executed"]) == ("1", "HerdsmanInterruptible", ["0"])
    entry = talk.history(prompt_id)
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    assert entry["status"]["messages"][-1][0] == "execution_interrupted"
    assert entry["outputs"] == {"0": {"text": ["before"]}}
    assert talk.http.get(f"/api/jobs/{prompt_id}").json()["status"] == "failed"


def test_a_sampler_is_interrupted_between_its_steps(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(a_picture(steps=1000, seconds=1))
        until(socket, "progress")
        interrupt(talk, prompt_id)
    assert talk.end(prompt_id)["status"]["messages"][-1][0] == "execution_interrupted"


def test_a_silent_node_ends_first_and_the_last_one_ignores_an_interrupt(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        first = talk.submit(short(10))
        until(socket, "executing", node="1")
        interrupt(talk, first)
        last = talk.submit({"1": node("HerdsmanSleep", seconds=11)})
        until_the_end(socket, first)
        until(socket, "executing", node="1")
        interrupt(talk, last)
    stopped = talk.end(first)["status"]["messages"][-1]
    assert (stopped[0], stopped[1]["node_id"], stopped[1]["executed"]) == (
        "execution_interrupted",
        "2",
        ["1"],
    )
    assert talk.end(last)["status"]["status_str"] == "success"


@pytest.mark.parametrize("body", [b"", b"no json", b"{}", b"[]"])
def test_an_interrupt_that_names_nobody_stops_whatever_runs(talk: Talk, body: bytes) -> None:
    prompt_id = talk.submit(long())
    talk.running(prompt_id)
    assert talk.http.post("/interrupt", content=body).status_code == 200
    assert talk.end(prompt_id)["status"]["messages"][-1][0] == "execution_interrupted"


def test_an_interrupt_of_another_job_or_of_none_does_no_harm(talk: Talk) -> None:
    assert interrupt(talk, "nobody").status_code == 200
    assert talk.http.post("/interrupt").status_code == 200
    prompt_id = talk.submit(short(20))
    talk.running(prompt_id)
    assert interrupt(talk, str(uuid.uuid4())).status_code == 200
    assert talk.end(prompt_id)["status"]["status_str"] == "success"


def test_an_old_server_stops_whatever_runs_whoever_is_named() -> None:
    with talking(version="0.3.45", speed=50) as talk:
        prompt_id = talk.submit(long())
        talk.running(prompt_id)
        interrupt(talk, str(uuid.uuid4()))
        assert talk.end(prompt_id)["status"]["messages"][-1][0] == "execution_interrupted"


def test_only_what_waits_can_be_deleted_and_it_is_then_nowhere(talk: Talk) -> None:
    running = talk.submit(long())
    talk.running(running)
    waiting = [talk.submit(short(number=number)) for number in range(4)]
    with talk.socket("other") as socket:
        next_message(socket)
        answer = talk.http.post("/queue", json={"delete": [waiting[1], running, "nobody"]})
        assert next_message(socket)["type"] == "status"
    assert (answer.status_code, answer.content) == (200, b"")
    assert talk.queue() == ([running], [waiting[0], waiting[2], waiting[3]])
    assert talk.history(waiting[1]) == {}
    talk.http.post("/queue", json={"clear": True})
    assert talk.queue() == ([running], [])


@pytest.mark.parametrize("route", ["/free", "/queue", "/history"])
def test_bad_json_is_an_error_of_the_server(talk: Talk, route: str) -> None:
    assert talk.http.post(route, content=b"no json").status_code == 500


def test_a_restart_forgets_all_but_the_files(talk: Talk) -> None:
    preview = {**short(), "3": node("PreviewImage", images=["1", 0])}
    done, entry = talk.run(preview)
    running = talk.submit({"1": node("HerdsmanHang")})
    talk.running(running)
    waiting = talk.submit(short())
    url = talk.fake.url
    talk.fake.restart()
    assert talk.fake.url == url
    assert talk.http.get("/history").json() == {}
    assert talk.queue() == ([], [])
    saved, temporary = entry["outputs"]["2"]["images"][0], entry["outputs"]["3"]["images"][0]
    assert talk.http.get("/view", params=saved).status_code == 200
    assert temporary["type"] == "temp"
    assert talk.http.get("/view", params=temporary).status_code == 404
    assert [talk.fake.renders(each) for each in (done, running, waiting)] == [1, 1, 0]
    again, _ = talk.run(preview)
    assert talk.fake.ledger.of(again)[0].worked == ["1", "2", "3"]
    assert talk.fake.ledger.of(running)[0].end == "killed"


def test_a_restart_can_keep_the_history(talk: Talk) -> None:
    done, entry = talk.run(short())
    talk.fake.restart(lose_history=False)
    assert talk.history(done) == entry


def test_while_it_is_down_connections_are_refused() -> None:
    with talking() as talk, talk.socket() as socket:
        next_message(socket)
        talk.fake.restart(down_s=0.5)
        assert not talk.fake.up
        with pytest.raises(httpx.ConnectError):
            talk.http.get("/queue")
        with pytest.raises(ConnectionClosedError) as closed:
            next_message(socket)
        assert closed.value.rcvd is None  # no closing word, as when a process is killed
        talk.fake.wait_for(lambda: talk.fake.up)
        assert talk.http.get("/queue").status_code == 200


def test_a_crash_lasts_until_somebody_starts_it_again(talk: Talk) -> None:
    talk.fake.crash()
    with pytest.raises(httpx.ConnectError):
        talk.http.get("/queue")
    talk.fake.restart()
    assert talk.http.get("/queue").status_code == 200


def test_versions_have_what_they_have() -> None:
    with talking(version="0.3.45") as old:
        assert old.http.get("/api/jobs").status_code == 404
        assert old.http.get("/system_stats").json()["system"]["comfyui_version"] == "0.3.45"
        assert old.submit(short(), prompt_id="anything") == "anything"
    with talking(version="0.3.40") as older:
        assert older.submit(short(), prompt_id="ours") != "ours"
    with talking(version="0.26.0") as new:
        refused = new.post_prompt(short(), prompt_id="ABC")
        assert refused.status_code == 400
        assert new.post_prompt(short(), prompt_id=str(uuid.uuid4()).upper()).status_code == 400
        assert new.post_prompt(short(), prompt_id=str(uuid.uuid4())).status_code == 200


def test_a_new_version_cancels_by_id() -> None:
    with talking(version="0.26.0", speed=50) as talk:
        running, waiting = talk.submit(long()), talk.submit(short())
        talk.running(running)
        assert talk.http.post(f"/api/jobs/{waiting}/cancel").status_code == 200
        assert talk.queue() == ([running], [])
        assert talk.http.post(f"/api/jobs/{running}/cancel").status_code == 200
        talk.end(running)
        assert talk.http.get(f"/api/jobs/{running}").json()["status"] == "cancelled"
        assert talk.http.post("/api/jobs/nobody/cancel").status_code == 404


@pytest.mark.parametrize("version", ["", "new", "1.", "0.7.0-rc1"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        FakeComfyUI(version=version)


def test_a_port_that_is_taken_is_not_shared(talk: Talk) -> None:
    with pytest.raises(OSError, match="in use"):
        FakeComfyUI(port=int(talk.fake.url.rpartition(":")[2]))
