"""The sockets of the fake ComfyUI: who is told what, and the traps of the real one."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection

from tests.support.comfyui_client import (
    Message,
    Talk,
    a_picture,
    kinds,
    next_message,
    next_picture,
    node,
    short,
    talking,
    until,
    until_the_end,
)

QUIET_S = 0.4


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(speed=50) as talk:
        yield talk


def long_then_save() -> dict[str, Any]:
    """Its first node works until it is interrupted, or for an hour."""
    return {
        "1": node("HerdsmanInterruptible", seconds=3600),
        "2": node("SaveImage", images=["1", 0], filename_prefix="long"),
    }


def steps(seconds: float) -> dict[str, Any]:
    """Three steps that take so long each, in real seconds."""
    return a_picture(steps=3, seconds=seconds * 50)


def rest(socket: ClientConnection) -> list[Message]:
    """What is said until it is quiet."""
    heard: list[Message] = []
    try:
        while True:
            received = socket.recv(timeout=QUIET_S)
            heard += [json.loads(received)] if isinstance(received, str) else []
    except TimeoutError:
        return heard


def test_without_a_client_id_one_is_invented_and_can_be_used(talk: Talk) -> None:
    with talk.socket(client_id=None) as socket:
        invented = next_message(socket)["data"]["sid"]
        prompt_id = talk.submit(short(), client_id=invented)
        assert "executed" in kinds(until_the_end(socket, prompt_id))


def test_nothing_is_said_again_to_who_connects_late(talk: Talk) -> None:
    prompt_id, _ = talk.run(short())
    with talk.socket() as socket:
        assert kinds(rest(socket)) == ["status"]
    assert talk.fake.renders(prompt_id) == 1


def test_a_job_is_told_to_its_client_and_status_to_everybody(talk: Talk) -> None:
    with talk.socket("mine") as mine, talk.socket("other") as other:
        next_message(mine)
        next_message(other)
        prompt_id = talk.submit(short(), client_id="mine")
        until_the_end(mine, prompt_id)
        assert set(kinds(rest(other))) == {"status"}


def test_of_a_job_without_a_client_everybody_hears_some_and_nobody_the_rest(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit_alone(a_picture())
        assert next_picture(socket).startswith(struct.pack(">II", 1, 2))
        talk.end(prompt_id)
        assert set(kinds(rest(socket))) <= {"status", "progress_state", "progress"}
    unheard = {said.type for said in talk.fake.ledger.messages if not said.heard}
    assert unheard == {"execution_start", "execution_cached", "execution_success", "executing", "executed"}


def test_the_interruption_of_a_job_without_a_client_is_told_to_everybody(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit_alone(long_then_save())
        talk.running(prompt_id)
        talk.http.post("/interrupt", json={"prompt_id": prompt_id})
        assert until(socket, "execution_interrupted")[-1]["data"]["prompt_id"] == prompt_id


def test_who_comes_back_during_the_run_is_told_the_node_without_the_job(talk: Talk) -> None:
    with talk.socket() as first:
        next_message(first)
        prompt_id = talk.submit(long_then_save())
        until(first, "executing", node="1")
    talk.fake.wait_for(lambda: talk.fake.sockets == 0)
    with talk.socket() as second:
        assert next_message(second)["data"]["sid"] == "C"
        assert next_message(second) == {"type": "executing", "data": {"node": "1"}}
        talk.http.post("/interrupt", json={"prompt_id": prompt_id})
        heard = until_the_end(second, prompt_id)
        assert "execution_start" not in kinds(heard)
        assert "execution_interrupted" in kinds(heard)


def test_a_lost_socket_does_not_stop_the_job(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(short(5))
        until(socket, "executing")
    assert talk.end(prompt_id)["status"]["status_str"] == "success"


def test_when_an_older_socket_closes_the_newer_one_goes_silent_for_ever(talk: Talk) -> None:
    with talk.socket() as older, talk.socket() as newer:
        next_message(older)
        next_message(newer)
        before = talk.submit(short(number=1))
        assert "executed" in kinds(until_the_end(newer, before))
        assert set(kinds(rest(older))) == set()
        older.close()
        talk.fake.wait_for(lambda: talk.fake.sockets == 1)
        after, _ = talk.run(short(number=2))
        assert rest(newer) == []
        newer.ping().wait(10)
    assert talk.fake.renders(after) == 1


def test_previews_are_bare_unless_words_are_asked_for(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        talk.submit(a_picture())
        event, kind = struct.unpack(">II", next_picture(socket)[:8])
        assert (event, kind) == (1, 2)


def test_previews_come_with_words_for_who_says_so_first(talk: Talk) -> None:
    with talk.socket() as socket:
        socket.send(json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}}))
        flags = until(socket, "feature_flags")[-1]["data"]
        assert flags["supports_preview_metadata"] is True
        prompt_id = talk.submit(a_picture())
        frame = next_picture(socket)
    event, length = struct.unpack(">II", frame[:8])
    words = json.loads(frame[8 : 8 + length])
    assert event == 4
    assert (words["node_id"], words["prompt_id"], words["image_type"]) == ("3", prompt_id, "image/png")
    assert {"display_node_id", "parent_node_id", "real_node_id"} <= set(words)
    assert frame[8 + length :].startswith(b"\x89PNG")


@pytest.mark.parametrize("garbage", ["no json", "[]", '{"type": "unknown"}', "7"])
def test_garbage_is_ignored_and_only_the_first_word_counts(talk: Talk, garbage: str) -> None:
    with talk.socket() as socket:
        next_message(socket)
        socket.send(garbage)
        socket.send(b"\0\1")
        socket.send(json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}}))
        prompt_id = talk.submit(a_picture())
        assert struct.unpack(">I", next_picture(socket)[:4]) == (1,)
        assert "feature_flags" not in kinds(until_the_end(socket, prompt_id))


def test_pictures_for_the_socket_are_nowhere_else(talk: Talk) -> None:
    workflow = {
        "1": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
        "2": node("SaveImageWebsocket", images=["1", 0]),
    }
    for _ in range(2):  # never cached
        with talk.socket() as socket:
            next_message(socket)
            prompt_id = talk.submit(workflow)
            assert next_picture(socket)[8:].startswith(b"\x89PNG")
            until_the_end(socket, prompt_id)
        entry = talk.history(prompt_id)
        assert (entry["status"]["status_str"], entry["outputs"]) == ("success", {})


def test_a_frame_too_large_for_the_client_ends_the_socket_and_not_the_job(talk: Talk) -> None:
    with talk.socket(max_size=1024 * 1024) as socket:
        next_message(socket)
        prompt_id = talk.submit({"1": node("HerdsmanPreview", megabytes=8)})
        with pytest.raises(ConnectionClosedError) as closed:
            until_the_end(socket, prompt_id)
        assert closed.value.sent is not None
        assert closed.value.sent.code == 1009
    assert talk.end(prompt_id)["status"]["status_str"] == "success"


def test_a_client_that_does_not_read_holds_up_nobody(talk: Talk) -> None:
    with talk.socket(max_size=None, max_queue=1, close_timeout=0.2) as socket:
        next_message(socket)
        prompt_id = talk.submit({"1": node("HerdsmanPreview", megabytes=64)})
        assert talk.end(prompt_id)["status"]["status_str"] == "success"
        talk.fake.__exit__(None, None, None)


def test_steps_can_be_slow_enough_to_be_watched(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(steps(0.05))
        values = [m["data"]["value"] for m in until_the_end(socket, prompt_id) if m["type"] == "progress"]
    assert values == [1, 2, 3]


def test_a_node_may_bring_nodes_and_words_of_its_own(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit({"1": node("HerdsmanExpand")})
        heard = until_the_end(socket, prompt_id)
    nodes = [m["data"]["node"] for m in heard if m["type"] == "executing"]
    assert nodes == ["1", "1.0.0.0", "1.0.0.1", None]
    assert {m["data"].get("display_node") for m in heard if m["type"] == "executing"} == {"1", None}
    assert "herdsman_news" in kinds(heard)


def test_a_plain_request_for_the_socket_is_refused(talk: Talk) -> None:
    assert talk.http.get("/ws").status_code == 400
