"""The fake ComfyUI answers `POST /prompt` as the real one does, good or bad."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.comfyui_client import Talk, a_picture, node, short, talking


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(speed=50) as talk:
        yield talk


def picture_with(node_id: str, **inputs: object) -> dict[str, Any]:
    workflow = a_picture()
    workflow[node_id]["inputs"].update(inputs)
    return workflow


def picture_without(node_id: str, name: str) -> dict[str, Any]:
    workflow = a_picture()
    del workflow[node_id]["inputs"][name]
    return workflow


def test_an_accepted_job_is_echoed_with_its_number(talk: Talk) -> None:
    prompt_id = str(uuid.uuid4())
    talk.run(short())
    answer = talk.post_prompt(short(), prompt_id=prompt_id, client_id="C")
    assert answer.status_code == 200
    assert answer.json() == {"prompt_id": prompt_id, "number": 1, "node_errors": {}}


@pytest.mark.parametrize(
    ("workflow", "node_id", "kind"),
    [
        (picture_with("4", ckpt_name="nope.safetensors"), "4", "value_not_in_list"),
        (picture_without("6", "text"), "6", "required_input_missing"),
        (picture_with("3", steps="many"), "3", "invalid_input_type"),
        (picture_with("3", steps=0), "3", "value_smaller_than_min"),
        (picture_with("3", cfg=101), "3", "value_bigger_than_max"),
        (picture_with("8", samples=["3"]), "8", "bad_linked_input"),
        (picture_with("9", images=["5", 0]), "9", "return_type_mismatch"),
        (picture_with("8", samples=["77", 0]), "8", "exception_during_inner_validation"),
        (picture_with("8", samples=["3", 4]), "8", "exception_during_inner_validation"),
    ],
)
def test_invalid_inputs_are_refused_with_the_node_that_has_them(
    talk: Talk, workflow: dict[str, Any], node_id: str, kind: str
) -> None:
    answer = talk.post_prompt(workflow, client_id="C")
    body = answer.json()
    assert answer.status_code == 400
    assert body["error"] == {
        "type": "prompt_outputs_failed_validation",
        "message": "Prompt outputs failed validation",
        "details": "",
        "extra_info": {},
    }
    assert list(body["node_errors"]) == [node_id]
    found = body["node_errors"][node_id]
    assert found["errors"][0]["type"] == kind
    assert set(found["errors"][0]) == {"type", "message", "details", "extra_info"}
    assert found["dependent_outputs"] == ["9"]
    assert found["class_type"] == workflow[node_id]["class_type"]
    assert talk.fake.runs == 0


def test_a_missing_model_is_named_beside_those_that_are_there(talk: Talk) -> None:
    body = talk.post_prompt(picture_with("4", ckpt_name="nope.safetensors")).json()
    details = body["node_errors"]["4"]["errors"][0]["details"]
    assert details.startswith("ckpt_name: 'nope.safetensors' not in ['a.safetensors'")


def test_nodes_that_lead_in_a_circle_are_refused(talk: Talk) -> None:
    workflow = {
        "1": node("HerdsmanSleep", seconds=0, anything=["2", 0]),
        "2": node("HerdsmanSleep", seconds=0, anything=["1", 0]),
    }
    answer = talk.post_prompt(workflow)
    assert answer.status_code == 400
    errors = answer.json()["node_errors"]
    assert {e["type"] for each in errors.values() for e in each["errors"]} == {"exception_during_inner_validation"}


def test_an_invalid_output_is_dropped_while_the_rest_runs(talk: Talk) -> None:
    workflow = {
        **short(),
        "4": node("SaveImage", images=["5", 0], filename_prefix="dropped"),
        "5": node("LoadImage", image="nope.png"),
    }
    answer = talk.post_prompt(workflow, client_id="C")
    assert answer.status_code == 200
    assert answer.json()["node_errors"] == {
        "5": {
            "errors": [
                {
                    "type": "custom_validation_failed",
                    "message": "Custom validation failed for node",
                    "details": "image - Invalid image file: nope.png",
                    "extra_info": {"input_name": "image"},
                }
            ],
            "dependent_outputs": ["4"],
            "class_type": "LoadImage",
        }
    }
    entry = talk.end(answer.json()["prompt_id"])
    assert entry["status"]["status_str"] == "success"
    assert list(entry["outputs"]) == ["2"]


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ({"prompt": {"1": node("NoSuchNode")}}, "invalid_prompt", "NoSuchNode does not exist"),
        ({"prompt": {"1": {"inputs": {}}}}, "invalid_prompt", "missing the class_type"),
        ({"prompt": {"nodes": [], "links": [], "version": 0.4}}, "invalid_prompt", "missing the class_type"),
        ({"prompt": {"1": node("CheckpointLoaderSimple")}}, "prompt_no_outputs", "no outputs"),
        ({"prompt": {}}, "prompt_no_outputs", "no outputs"),
        ({"client_id": "C"}, "no_prompt", "No prompt"),
    ],
)
def test_what_is_no_workflow_is_refused(talk: Talk, body: dict[str, Any], kind: str, message: str) -> None:
    answer = talk.http.post("/prompt", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == kind
    assert message in answer.json()["error"]["message"]
    assert answer.json()["node_errors"] == {}


def test_an_unknown_node_is_named_with_its_id(talk: Talk) -> None:
    error = talk.post_prompt({"1": node("NoSuchNode")}).json()["error"]
    assert error["details"] == "Node ID '#1'"


@pytest.mark.parametrize(
    "body",
    [
        b"no json",
        b"",
        b"[]",
        b'{"prompt": [1]}',
        b'{"prompt": null}',
        b'{"prompt": {"1": {"class_type": "HerdsmanHang", "inputs": {}}}, "extra_data": null}',
    ],
)
def test_a_body_of_the_wrong_shape_is_an_error_of_the_server(talk: Talk, body: bytes) -> None:
    answer = talk.http.post("/prompt", content=body)
    assert answer.status_code == 500
    assert answer.text.startswith("500 Internal Server Error")
    assert talk.queue() == ([], [])


def test_a_body_over_the_limit_is_too_large() -> None:
    with talking(max_upload_mb=1) as talk:
        assert talk.http.post("/prompt", content=bytes(1024 * 1024 + 1)).status_code == 413
        stream = (bytes(512 * 1024) for _ in range(3))
        assert talk.http.post("/prompt", content=stream).status_code == 413
        assert talk.http.get("/prompt").status_code == 200


def test_a_page_of_another_site_is_kept_out(talk: Talk) -> None:
    foreign = talk.http.get("/queue", headers={"Origin": "https://example.com"})
    assert (foreign.status_code, foreign.content) == (403, b"")
    assert talk.http.get("/queue", headers={"Origin": talk.fake.url}).status_code == 200


def test_the_kind_of_the_body_is_not_looked_at(talk: Talk) -> None:
    body = b'{"prompt": {"1": {"class_type": "HerdsmanSleep", "inputs": {"seconds": 0}}}}'
    answer = talk.http.post("/prompt", content=body, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 200


def test_a_null_id_becomes_the_word_none(talk: Talk) -> None:
    assert talk.post_prompt(short(), prompt_id=None).json()["prompt_id"] == "None"


def test_numbers_in_words_are_read_and_unknown_inputs_kept(talk: Talk) -> None:
    workflow = picture_with("3", steps="3", unknown="kept")
    workflow["3"]["_meta"] = {"title": "sampler"}
    prompt_id, entry = talk.run(workflow)
    assert entry["prompt"][2]["3"]["inputs"]["steps"] == 3
    assert entry["prompt"][2]["3"]["inputs"]["unknown"] == "kept"
    assert entry["prompt"][2]["3"]["_meta"] == {"title": "sampler"}
    assert talk.fake.renders(prompt_id) == 1


def test_the_lowest_number_runs_first_and_front_goes_before(talk: Talk) -> None:
    busy = talk.submit({"1": node("HerdsmanInterruptible", seconds=3600)})
    talk.running(busy)
    usual = talk.submit(short(number=1))
    low = talk.submit(short(number=2), number=-50)
    front = talk.submit(short(number=3), front=True)
    queued = talk.http.get("/queue").json()["queue_pending"]
    assert [each[1] for each in sorted(queued)] == [low, front, usual]
    assert next(each[0] for each in queued if each[1] == front) < 0
    talk.http.post("/interrupt", json={"prompt_id": busy})
    talk.end(usual)
    assert [each.prompt_id for each in talk.fake.ledger.renders] == [busy, low, front, usual]


def test_only_the_outputs_asked_for_are_run(talk: Talk) -> None:
    workflow = {**short(), "3": node("SaveImage", images=["1", 0], filename_prefix="other")}
    _, entry = talk.run(workflow, partial_execution_targets=["3"])
    assert list(entry["outputs"]) == ["3"]


def test_the_same_id_and_number_is_an_error_and_queued_all_the_same(talk: Talk) -> None:
    busy = talk.submit({"1": node("HerdsmanInterruptible", seconds=3600)})
    talk.running(busy)
    prompt_id = str(uuid.uuid4())
    assert talk.post_prompt(short(number=1), prompt_id=prompt_id, number=5).status_code == 200
    assert talk.post_prompt(short(number=2), prompt_id=prompt_id, number=5).status_code == 500
    assert talk.queue()[1] == [prompt_id, prompt_id]
    talk.http.post("/queue", json={"delete": [prompt_id]})
    assert talk.queue()[1] == [prompt_id]


def test_a_client_id_that_is_no_text_kills_the_service(talk: Talk) -> None:
    assert talk.post_prompt(short(), client_id=7).status_code == 200
    talk.fake.wait_for(lambda: not talk.fake.up)
    talk.fake.restart()
    assert talk.http.get("/history").json() == {}
