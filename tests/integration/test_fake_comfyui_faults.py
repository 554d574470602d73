"""Each fault of the fake ComfyUI strikes where and as often as it was told to."""

import time
import uuid
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from herdsman.testing.fakes.comfyui import STEPS, FakeComfyUI, Fault
from tests.support.comfyui_client import (
    Talk,
    a_picture,
    kinds,
    next_message,
    node,
    short,
    talking,
    until,
    until_the_end,
)

SOCKET_STEPS = [step for step in STEPS if step not in {"queued", "history", "done"}]


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(speed=50) as talk:
        yield talk


def heard_until_cut(talk: Talk, prompt_id: str) -> list[str]:
    """What is heard of a job on a socket that ends in the middle, with the last word's name as a fault has it."""
    heard: list[str] = []
    with talk.socket() as socket:
        next_message(socket)
        talk.submit(a_picture(), prompt_id=prompt_id)
        with pytest.raises(ConnectionClosedError):
            while True:
                heard.append(next_message(socket)["type"])
    return heard


def test_the_end_of_a_job_can_be_kept_from_the_socket(talk: Talk) -> None:
    talk.fake.add_fault(Fault.COMPLETION_NEVER_SENT)
    with talk.socket() as socket:
        next_message(socket)
        quiet, entry = talk.run(short())
        told = talk.submit(short(number=2))
        heard = until_the_end(socket, told)
    assert entry["status"]["completed"]
    of_quiet = [m for m in heard if m["data"].get("prompt_id") == quiet]
    assert "executed" in kinds(of_quiet)
    assert "execution_success" not in kinds(of_quiet)
    assert {"node": None, "prompt_id": quiet} not in [m["data"] for m in of_quiet]
    assert talk.fake.struck(Fault.COMPLETION_NEVER_SENT) == 1


def test_one_of_the_last_messages_can_be_kept_back_alone(talk: Talk) -> None:
    talk.fake.add_fault(Fault.COMPLETION_NEVER_SENT, at="execution_success")
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(short())
        assert "execution_success" not in kinds(until_the_end(socket, prompt_id))


@pytest.mark.parametrize("step", SOCKET_STEPS)
def test_a_socket_can_be_cut_at_any_message(talk: Talk, step: str) -> None:
    talk.fake.add_fault(Fault.CUT_SOCKET, at=step)
    prompt_id = str(uuid.uuid4())
    heard = heard_until_cut(talk, prompt_id)
    assert talk.fake.struck(Fault.CUT_SOCKET) == 1
    assert step not in heard
    assert talk.end(prompt_id)["status"]["status_str"] == "success"
    unheard = [said.type for said in talk.fake.ledger.messages if not said.heard]
    assert unheard[0] == step.partition(":")[0]
    assert talk.fake.sockets == 0


def test_a_socket_can_be_cut_at_the_nth_message_of_a_job(talk: Talk) -> None:
    talk.fake.add_fault(Fault.CUT_SOCKET, at="3")
    heard = heard_until_cut(talk, str(uuid.uuid4()))
    assert [kind for kind in heard if kind != "status"] == ["execution_start", "execution_cached"]


def test_a_cut_socket_that_comes_back_hears_the_rest(talk: Talk) -> None:
    talk.fake.add_fault(Fault.CUT_SOCKET, at="executing:1")
    workflow = {
        "1": node("HerdsmanInterruptible", seconds=3600),
        "2": node("SaveImage", images=["1", 0], filename_prefix="x"),
    }
    with talk.socket() as first:
        next_message(first)
        prompt_id = talk.submit(workflow)
        with pytest.raises(ConnectionClosedError):
            until_the_end(first, prompt_id)
    with talk.socket() as second:
        assert until(second, "executing")[-1]["data"] == {"node": "1"}
        talk.http.post("/interrupt", json={"prompt_id": prompt_id})
        assert "execution_interrupted" in kinds(until_the_end(second, prompt_id))


@pytest.mark.parametrize("fault", [Fault.DEAF_SOCKET, Fault.DUPLICATE_CLIENT])
def test_a_deaf_socket_stays_open_and_hears_nothing_more(talk: Talk, fault: Fault) -> None:
    talk.fake.add_fault(fault, at="executing")
    with talk.socket() as socket:
        next_message(socket)
        _, entry = talk.run(a_picture())
        assert kinds(until(socket, "progress_state"))[-1] == "progress_state"
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.3)
        socket.ping().wait(10)
        assert talk.fake.sockets == 1
    assert entry["status"]["status_str"] == "success"
    assert talk.fake.struck(fault) == 1
    heard = {said.type for said in talk.fake.ledger.messages if said.heard}
    assert heard == {"execution_start", "execution_cached", "progress_state"}


@pytest.mark.parametrize("step", [step for step in STEPS if step != "queued"])
def test_the_service_can_be_lost_at_any_step(talk: Talk, step: str) -> None:
    talk.fake.add_fault(Fault.RESTART, at=step, down_s=5)
    prompt_id = talk.submit(a_picture())
    talk.fake.wait_for(lambda: talk.fake.restarts == 1)
    ended = "success" if step in {"executing:null", "done"} else "killed"
    talk.fake.wait_for(lambda: talk.fake.ledger.of(prompt_id)[0].end == ended)
    assert talk.history(prompt_id) == {}
    assert talk.queue() == ([], [])
    assert talk.fake.struck(Fault.RESTART) == 1
    again, entry = talk.run(a_picture())
    assert entry["status"]["status_str"] == "success"
    assert [(each.prompt_id, each.life) for each in talk.fake.ledger.renders] == [(prompt_id, 0), (again, 1)]


def test_a_job_can_be_lost_before_its_submission_is_answered(talk: Talk) -> None:
    talk.fake.add_fault(Fault.RESTART, at="queued")
    prompt_id = str(uuid.uuid4())
    with pytest.raises(httpx.TransportError):
        talk.submit(short(), prompt_id=prompt_id)
    talk.fake.wait_for(lambda: talk.fake.restarts == 1)
    assert talk.history(prompt_id) == {}
    assert talk.fake.renders(prompt_id) == 0


def test_a_node_can_fail_by_id_or_class_with_any_error(talk: Talk) -> None:
    talk.fake.add_fault(Fault.NODE_ERROR, at="KSampler", kind="torch.OutOfMemoryError", message="full")
    _, entry = talk.run(a_picture())
    kind, error = entry["status"]["messages"][-1]
    assert (kind, error["node_id"], error["exception_type"]) == (
        "execution_error",
        "3",
        "torch.OutOfMemoryError",
    )
    talk.fake.add_fault(Fault.NODE_ERROR, at="9")
    _, entry = talk.run(a_picture())
    assert entry["status"]["messages"][-1][1]["node_id"] == "9"
    _, entry = talk.run(a_picture())
    assert entry["status"]["status_str"] == "success"


def test_a_node_can_hang_until_a_restart(talk: Talk) -> None:
    talk.fake.add_fault(Fault.NODE_HANGS, at="2")
    prompt_id = talk.submit(short())
    talk.fake.wait_for(lambda: talk.fake.struck(Fault.NODE_HANGS))
    talk.http.post("/interrupt", json={"prompt_id": prompt_id})
    time.sleep(0.1)
    assert talk.queue()[0] == [prompt_id]
    talk.fake.restart()
    assert talk.queue() == ([], [])


def test_the_thread_that_runs_jobs_can_die_and_all_else_goes_on(talk: Talk) -> None:
    talk.fake.add_fault(Fault.EXECUTION_DIES, at="2")
    first = talk.submit(short())
    talk.fake.wait_for(lambda: talk.fake.struck(Fault.EXECUTION_DIES))
    second = talk.submit(short())
    assert talk.http.post("/interrupt", json={"prompt_id": first}).status_code == 200
    assert talk.http.get("/system_stats").status_code == 200
    assert talk.queue() == ([first], [second])
    assert talk.history(first) == {}
    talk.fake.restart()
    assert talk.queue() == ([], [])


def test_an_interrupt_can_be_ignored(talk: Talk) -> None:
    talk.fake.add_fault(Fault.INTERRUPT_IGNORED)
    prompt_id = talk.submit({"1": node("HerdsmanInterruptible", seconds=3600)})
    talk.running(prompt_id)
    assert talk.http.post("/interrupt", json={"prompt_id": prompt_id}).status_code == 200
    assert talk.fake.struck(Fault.INTERRUPT_IGNORED) == 1
    assert talk.queue()[0] == [prompt_id]
    talk.http.post("/interrupt", json={"prompt_id": prompt_id})
    assert talk.end(prompt_id)["status"]["messages"][-1][0] == "execution_interrupted"


@pytest.mark.parametrize(("fault", "renders"), [(Fault.ERROR_AFTER_QUEUEING, 1), (Fault.ERROR_BEFORE_QUEUEING, 0)])
def test_an_error_of_the_submission_does_not_say_whether_it_is_queued(talk: Talk, fault: Fault, renders: int) -> None:
    talk.fake.add_fault(fault)
    prompt_id = str(uuid.uuid4())
    assert talk.post_prompt(short(), prompt_id=prompt_id, client_id="C").status_code == 500
    talk.run(short(number=2))  # by now the first one would have run
    assert talk.fake.renders(prompt_id) == renders


@pytest.mark.parametrize("seconds", [0, 60])
def test_the_answer_to_a_submission_can_get_lost(talk: Talk, seconds: float) -> None:
    talk.fake.add_fault(Fault.CLOSED_PROMPT, seconds=seconds)
    prompt_id = str(uuid.uuid4())
    body = {"prompt": short(), "prompt_id": prompt_id, "client_id": "C"}
    with pytest.raises(httpx.TransportError) as lost:
        talk.http.post("/prompt", json=body, timeout=0.5)
    assert isinstance(lost.value, httpx.ReadTimeout) is (seconds > 0)
    assert talk.end(prompt_id)["status"]["status_str"] == "success"


def test_the_history_can_be_late(talk: Talk) -> None:
    talk.fake.add_fault(Fault.NO_HISTORY_YET, seconds=25)
    with talk.socket() as socket:
        next_message(socket)
        prompt_id = talk.submit(short())
        until(socket, "execution_success")
        assert talk.history(prompt_id) == {}
        until_the_end(socket, prompt_id)
        assert talk.history(prompt_id) != {}


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        (Fault.HTML, 200, "text/html"),
        (Fault.UNAUTHORIZED, 401, "text/plain"),
        (Fault.TOO_MANY, 429, "text/plain"),
        (Fault.SERVER_ERROR, 500, "text/plain"),
    ],
)
@pytest.mark.parametrize("route", ["/history", "GET /history", "history", "/history/x"])
def test_any_route_can_give_a_wrong_answer(talk: Talk, fault: Fault, status: int, kind: str, route: str) -> None:
    talk.fake.add_fault(fault, at=route, times=2)
    assert talk.http.get("/queue").status_code == 200
    for _ in range(2):
        answer = talk.http.get("/history/x")
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith(kind)
        assert ("retry-after" in answer.headers) is (fault is Fault.TOO_MANY)
    assert talk.http.get("/history/x").json() == {}


def test_a_wrong_answer_can_be_given_to_everything_for_ever(talk: Talk) -> None:
    talk.fake.add_fault(Fault.HTML, times=None, status=502)
    for _ in range(3):
        assert talk.http.get("/queue").status_code == 502
        assert talk.post_prompt(short()).status_code == 502
    with pytest.raises(InvalidStatus), talk.socket():
        pass
    talk.fake.clear_faults()
    assert talk.http.get("/queue").status_code == 200


def test_a_socket_can_be_refused_alone(talk: Talk) -> None:
    talk.fake.add_fault(Fault.UNAUTHORIZED, at="/ws")
    with pytest.raises(InvalidStatus), talk.socket():
        pass
    with talk.socket() as socket:
        assert next_message(socket)["type"] == "status"


def test_http_can_be_slow_and_is_in_the_ledger_meanwhile(talk: Talk) -> None:
    talk.fake.add_fault(Fault.SLOW_HTTP, at="/queue", seconds=3600)
    with pytest.raises(httpx.ReadTimeout):
        talk.http.get("/queue", timeout=0.2)
    assert talk.fake.requests == [("GET", "/queue")]
    assert talk.fake.ledger.requests[0].status is None
    assert talk.http.get("/queue").status_code == 200


def test_a_file_can_vanish_while_the_cache_still_tells_of_it(talk: Talk) -> None:
    talk.run(short())
    talk.fake.add_fault(Fault.VIEW_MISSING)
    _, entry = talk.run(short())
    place = entry["outputs"]["2"]["images"][0]
    assert talk.http.get("/view", params=place).status_code == 404
    assert talk.http.get("/view", params=place).status_code == 404
    talk.http.post("/free", json={"free_memory": True})
    _, entry = talk.run(short())
    assert talk.http.get("/view", params=entry["outputs"]["2"]["images"][0]).status_code == 200


def test_a_fault_can_be_meant_for_one_job(talk: Talk) -> None:
    mine = str(uuid.uuid4())
    talk.fake.add_fault(Fault.NODE_ERROR, prompt_id=mine)
    _, other = talk.run(short())
    _, entry = talk.run(short(number=2), prompt_id=mine)
    assert other["status"]["status_str"] == "success"
    assert entry["status"]["status_str"] == "error"


def test_waiting_has_an_end() -> None:
    with FakeComfyUI() as fake, pytest.raises(TimeoutError):
        fake.wait_for(lambda: False, 0.05)
