"""The fake ComfyUI runs a job as the real one does: messages, history, queue and cache."""

import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from herdsman.testing.fakes.comfyui import Fault
from tests.support.comfyui_client import (
    PATIENCE_S,
    Talk,
    a_picture,
    kinds,
    next_message,
    node,
    short,
    talking,
    until_the_end,
)


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(speed=50) as talk:
        yield talk


def last_message(entry: dict[str, Any]) -> str:
    return str(entry["status"]["messages"][-1][0])


def test_a_normal_run_is_told_in_the_order_of_the_real_one(talk: Talk) -> None:
    workflow = {
        "1": node("EmptyImage", width=8, height=8, batch_size=1, color=0),
        "2": node("SaveImage", images=["1", 0], filename_prefix="probe/norm"),
    }
    with talk.socket() as socket:
        hello = next_message(socket)
        prompt_id = talk.submit(workflow)
        heard = until_the_end(socket, prompt_id)
    assert hello == {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 0}}, "sid": "C"}}
    assert kinds(heard) == [
        "status",
        "status",
        "execution_start",
        "execution_cached",
        "progress_state",
        "executing",
        "progress_state",
        "progress_state",
        "executing",
        "executed",
        "progress_state",
        "execution_success",
        "status",
        "executing",
    ]
    remaining = [m["data"]["status"]["exec_info"]["queue_remaining"] for m in heard if m["type"] == "status"]
    assert remaining == [1, 1, 0]
    image = {"filename": "norm_00001_.png", "subfolder": "probe", "type": "output"}
    told = {"node": "2", "display_node": "2", "output": {"images": [image]}, "prompt_id": prompt_id}
    assert heard[9]["data"] == told
    assert heard[-1]["data"] == {"node": None, "prompt_id": prompt_id}
    assert all(m["data"]["prompt_id"] == prompt_id for m in heard if m["type"] != "status")


def test_steps_are_told_with_value_and_max(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(a_picture(steps=4))
        heard = until_the_end(socket, prompt_id)
    steps = [m["data"] for m in heard if m["type"] == "progress"]
    assert [(step["value"], step["max"], step["node"]) for step in steps] == [(n, 4, "3") for n in (1, 2, 3, 4)]
    states = [m["data"]["nodes"]["3"] for m in heard if m["type"] == "progress_state" and "3" in m["data"]["nodes"]]
    assert {"value": 2.0, "max": 4.0, "state": "running"}.items() <= states[2].items()
    assert states[-1]["state"] == "finished"


def test_the_history_tells_the_whole_job(talk: Talk) -> None:
    prompt_id, entry = talk.run(a_picture(), extra_data={"job": "ours"})
    number, told_id, workflow, extra, outputs = entry["prompt"]
    assert (number, told_id, outputs) == (0, prompt_id, ["9"])
    assert workflow == a_picture()
    assert extra["job"] == "ours"
    assert extra["client_id"] == "C"
    assert extra["create_time"] > 1_000_000_000_000
    image = {"filename": "norm_00001_.png", "subfolder": "probe", "type": "output"}
    assert entry["outputs"] == {"9": {"images": [image]}}
    assert entry["status"]["status_str"] == "success"
    assert entry["status"]["completed"] is True
    assert [message[0] for message in entry["status"]["messages"]] == [
        "execution_start",
        "execution_cached",
        "execution_success",
    ]
    assert entry["meta"]["9"]["node_id"] == "9"


def test_the_history_is_empty_for_what_is_unknown_waits_or_runs(talk: Talk) -> None:
    running = talk.submit({"1": node("HerdsmanHang")})
    waiting = talk.submit(short())
    talk.running(running)
    for prompt_id in (running, waiting, "nobody"):
        answer = talk.http.get(f"/history/{prompt_id}")
        assert (answer.status_code, answer.json()) == (200, {})
    assert talk.queue() == ([running], [waiting])


def test_success_is_said_before_the_history_has_it(talk: Talk) -> None:
    # No matter of luck: what is a little late there is made very late here.
    talk.fake.add_fault(Fault.NO_HISTORY_YET, seconds=3600)
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(short())
        while next_message(socket)["type"] != "execution_success":
            pass
        assert talk.history(prompt_id) == {}
        assert talk.queue() == ([prompt_id], [])


def test_a_job_that_ends_is_never_in_neither_when_the_queue_is_read_first(talk: Talk) -> None:
    for number in range(40):
        prompt_id = talk.submit(short(0.05, number=number))
        looks = 0
        while not talk.history(prompt_id):
            running, waiting = talk.queue()
            assert prompt_id in running + waiting or talk.history(prompt_id)
            looks += 1
        assert talk.history(prompt_id)["status"]["completed"]


def test_a_job_is_silent_while_its_node_works_and_http_is_not(talk: Talk) -> None:
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(short(250))  # 5 s of real time
        while next_message(socket)["type"] != "executing":
            pass
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.3)
        assert talk.queue()[0] == [prompt_id]
        socket.ping().wait(PATIENCE_S)
        assert kinds(until_the_end(socket, prompt_id))[-1] == "executing"


def test_a_waiting_job_hears_nothing_but_status(talk: Talk) -> None:
    talk.submit({"1": node("HerdsmanHang")}, client_id="other")
    with talk.socket() as socket:
        next_message(socket)
        talk.submit(short())
        assert next_message(socket)["type"] == "status"
        with pytest.raises(TimeoutError):
            while '"status"' in str(socket.recv(timeout=0.3)):
                pass


def test_a_cached_run_is_short_and_tells_the_old_file_name(talk: Talk) -> None:
    first, _ = talk.run(a_picture())
    with talk.socket() as socket:
        next_message(socket)
        second = talk.submit(a_picture())
        heard = until_the_end(socket, second)
    assert kinds(heard) == [
        "status",
        "status",
        "execution_start",
        "execution_cached",
        "executed",
        "progress_state",
        "execution_success",
        "status",
        "executing",
    ]
    assert sorted(heard[3]["data"]["nodes"]) == sorted(a_picture())
    assert heard[5]["data"]["nodes"] == {}
    assert talk.fake.outputs(second) == talk.fake.outputs(first) != {}
    assert talk.fake.ledger.of(second)[0].worked == []


def test_a_job_without_a_client_gets_no_outputs_when_it_is_cached(talk: Talk) -> None:
    prompt_id = talk.submit_alone(short())
    assert talk.end(prompt_id)["outputs"] != {}
    again = talk.submit_alone(short())
    entry = talk.end(again)
    assert entry["outputs"] == {}
    assert entry["status"]["completed"] is True


def test_only_the_nodes_of_the_job_before_are_cached(talk: Talk) -> None:
    talk.run(a_picture(seed=1))
    other, _ = talk.run(a_picture(seed=2))
    again, _ = talk.run(a_picture(seed=1))
    assert talk.fake.ledger.of(other)[0].worked == ["3", "8", "9"]
    assert talk.fake.ledger.of(again)[0].worked == ["3", "8", "9"]


def test_freeing_memory_drops_the_cache(talk: Talk) -> None:
    talk.run(short())
    answer = talk.http.post("/free", json={"unload_models": True, "free_memory": True})
    assert (answer.status_code, answer.content) == (200, b"")
    again, _ = talk.run(short())
    assert talk.fake.ledger.of(again)[0].worked == ["1", "2"]


def test_a_cached_output_whose_file_is_gone_is_told_all_the_same(talk: Talk) -> None:
    first, _ = talk.run(short())
    image = talk.fake.outputs(first)["2"]["images"][0]
    talk.fake.delete_file(**image)
    _, entry = talk.run(short())
    assert entry["outputs"]["2"]["images"] == [image]
    assert talk.http.get("/view", params=image).status_code == 404


def test_equal_workflows_give_equal_bytes_on_any_machine() -> None:
    contents: list[bytes] = []
    for seed in (1, 2):
        with talking(seed=seed, speed=50) as talk:
            prompt_id, _ = talk.run(a_picture())
            contents.append(talk.fake.content(**talk.fake.outputs(prompt_id)["9"]["images"][0]))
            other, _ = talk.run(a_picture(text="a dog"))
            assert talk.fake.content(**talk.fake.outputs(other)["9"]["images"][0]) != contents[0]
    assert contents[0] == contents[1]
    assert contents[0].startswith(b"\x89PNG")


def test_a_batch_gives_as_many_pictures(talk: Talk) -> None:
    workflow = a_picture()
    workflow["5"]["inputs"]["batch_size"] = 3
    _, entry = talk.run(workflow)
    names = [image["filename"] for image in entry["outputs"]["9"]["images"]]
    assert names == ["norm_00001_.png", "norm_00002_.png", "norm_00003_.png"]
    assert len({talk.fake.content(name, "probe") for name in names}) == 3


@pytest.mark.parametrize(
    ("class_type", "inputs", "kind"),
    [
        ("HerdsmanFail", {"message": "no luck"}, "RuntimeError"),
        ("HerdsmanOutOfMemory", {}, "torch.OutOfMemoryError"),
    ],
)
def test_an_error_in_a_node_is_told_and_kept(talk: Talk, class_type: str, inputs: dict[str, object], kind: str) -> None:
    workflow = {"1": node("HerdsmanText", text="before"), "2": node(class_type, anything=["1", 0], **inputs)}
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(workflow)
        heard = until_the_end(socket, prompt_id)
    assert kinds(heard)[-3:] == ["execution_error", "status", "executing"]
    error = heard[-3]["data"]
    assert (error["node_id"], error["node_type"], error["executed"]) == ("2", class_type, ["1"])
    assert error["exception_type"] == kind
    assert {"exception_message", "traceback", "current_inputs", "current_outputs", "timestamp"} <= set(error)
    entry = talk.history(prompt_id)
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("error", False)
    assert last_message(entry) == "execution_error"
    assert entry["outputs"] == {"1": {"text": ["before"]}}


def test_an_error_between_nodes_is_called_a_success(talk: Talk) -> None:
    _, entry = talk.run({"1": node("HerdsmanCycle")})
    assert (entry["status"]["status_str"], entry["status"]["completed"]) == ("success", True)
    assert last_message(entry) == "execution_error"
    assert entry["outputs"] == {}


def test_a_hanging_node_leaves_its_job_running_and_the_rest_waiting(talk: Talk) -> None:
    hanging = talk.submit({"1": node("HerdsmanHang")})
    talk.running(hanging)
    later = talk.submit(short())
    assert talk.http.post("/interrupt", json={"prompt_id": hanging}).status_code == 200
    time.sleep(0.1)
    assert talk.queue() == ([hanging], [later])


def test_one_look_at_a_job_tells_where_it_stands(talk: Talk) -> None:
    def look(prompt_id: str) -> dict[str, Any]:
        return talk.http.get(f"/api/jobs/{prompt_id}").json()

    done, _ = talk.run(short())
    failed, _ = talk.run({"1": node("HerdsmanFail", message="no luck")})
    cycle, _ = talk.run({"1": node("HerdsmanCycle")})
    running = talk.submit({"1": node("HerdsmanHang")})
    talk.running(running)
    waiting = talk.submit(short())
    assert look(waiting)["status"] == "pending"
    assert look(running)["status"] == "in_progress"
    assert look(cycle)["status"] == "completed"
    assert look(failed)["status"] == "failed"
    assert look(failed)["execution_error"]["exception_message"] == "no luck"
    ended = look(done)
    assert (ended["status"], ended["outputs_count"]) == ("completed", 1)
    assert ended["outputs"] == talk.fake.outputs(done)
    assert {"workflow", "execution_status", "preview_output", "execution_end_time"} <= set(ended)
    assert "outputs" not in look(running)
    unknown = talk.http.get("/api/jobs/nobody")
    assert (unknown.status_code, unknown.json()) == (404, {"error": "Job not found"})
    assert talk.http.get(f"/jobs/{done}").status_code == 404


def test_jobs_are_listed_by_status_and_page(talk: Talk) -> None:
    ids = [talk.run(short(number=number))[0] for number in range(3)]
    listed = talk.http.get("/api/jobs", params={"status": "completed", "limit": 2, "offset": 1}).json()
    assert [job["id"] for job in listed["jobs"]] == [ids[1], ids[0]]
    assert listed["pagination"]["total"] == 3
    assert talk.http.get("/api/jobs", params={"status": "pending"}).json()["jobs"] == []


def test_history_can_be_listed_and_forgotten(talk: Talk) -> None:
    ids = [talk.run(short(number=number))[0] for number in range(3)]
    assert list(talk.http.get("/history").json()) == ids
    assert list(talk.http.get("/history", params={"max_items": 1}).json()) == ids[2:]
    assert talk.http.post("/history", json={"delete": [ids[0]]}).status_code == 200
    assert list(talk.http.get("/api/history").json()) == ids[1:]
    talk.http.post("/history", json={"clear": True})
    assert talk.http.get("/history").json() == {}


def test_the_same_id_is_run_twice_and_the_later_end_stays(talk: Talk) -> None:
    prompt_id = str(uuid.uuid4())
    talk.run(short(number=1), prompt_id=prompt_id)
    talk.submit(short(number=2), prompt_id=prompt_id)
    talk.fake.wait_for(lambda: talk.fake.ledger.of(prompt_id)[-1].end and talk.fake.renders(prompt_id) == 2)
    assert talk.fake.runs == 2
    assert talk.history(prompt_id)["outputs"]["2"]["images"][0]["filename"] == "short_00002_.png"


def test_requests_are_kept_from_their_arrival(talk: Talk) -> None:
    talk.http.get("/queue")
    talk.http.get("/api/history/x?max_items=1")
    assert talk.fake.requests == [("GET", "/queue"), ("GET", "/api/history/x")]
    assert [asked.status for asked in talk.fake.ledger.requests] == [200, 200]


def test_start_and_end_are_quick_and_leave_no_thread() -> None:
    before = set(threading.enumerate())
    with talking() as talk, talk.socket() as socket:
        next_message(socket)
        talk.submit({"1": node("HerdsmanHang")})
        began = time.monotonic()
        talk.fake.__exit__(None, None, None)
        assert time.monotonic() - began < 5
    talk.fake.wait_for(lambda: not {t for t in threading.enumerate() if "fake" in t.name} - before)
