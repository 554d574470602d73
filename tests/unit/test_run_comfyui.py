"""A workflow on the command line: read, filled in, and judged before anything is submitted."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from herdsman.cli.run import WorkflowOptions, payload_of
from herdsman.errors import InvalidRequest

WORKFLOW: dict[str, Any] = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 5, "steps": 20}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a herd"}},
    "10": {"class_type": "LoadImage", "inputs": {"image": "x.png"}},
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERDSMAN_RESULT_STORE", str(tmp_path / "results"))


def a_file(document: object = WORKFLOW) -> str:
    Path("workflow.json").write_text(json.dumps(document))
    return "workflow.json"


def payload(
    *values: str, files: list[str] | None = None, document: object = WORKFLOW, given: object = None
) -> dict[str, Any]:
    asked = WorkflowOptions(workflow=a_file(document), values=list(values), files=files)
    made = payload_of("comfyui", given if given is not None else {}, asked)
    assert isinstance(made, dict)
    return made  # pyright: ignore[reportUnknownVariableType]


def path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def test_a_workflow_alone_is_a_payload() -> None:
    assert payload() == {"workflow": WORKFLOW}


def test_a_whole_payload_is_taken_as_it_is_and_what_is_typed_stands_above_it() -> None:
    whole = {"workflow": WORKFLOW, "set": {"6.text": "one", "3.seed": 1}, "expect": ["3"]}
    assert payload("6.text=two", document=whole) == {**whole, "set": {"6.text": "two", "3.seed": 1}}


def test_a_node_whose_id_is_workflow_does_not_make_it_a_payload() -> None:
    odd = {"workflow": {"class_type": "KSampler", "inputs": {"seed": 1}}}
    assert payload(document=odd) == {"workflow": odd}


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("0.5", 0.5), ("true", True), ('"7"', "7"), ("a = b", "a = b"), ("NaN", "NaN"), ("", "")],
)
def test_a_value_is_json_where_it_is_some(text: str, value: object) -> None:
    assert payload(f"3.seed={text}")["set"] == {"3.seed": value}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("3.sed=7", "did you mean '3.seed'"),
        ("4.seed=7", "did you mean '3.seed'"),
        ("seed", "write --set NODE.NAME=VALUE"),
        ("=7", "write --set NODE.NAME=VALUE"),
    ],
)
def test_a_path_that_no_node_has_is_refused_with_what_was_meant(value: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        payload(value)


def test_a_file_is_copied_to_the_store_and_the_job_holds_the_reference(tmp_path: Path) -> None:
    Path("cat.png").write_bytes(b"a cat")
    uri = payload(files=["10.image=cat.png"])["files"]["10.image"]
    kept = path_of(uri)
    assert uri.startswith("file://")
    assert kept.read_bytes() == b"a cat"
    assert kept.is_relative_to(tmp_path / "results")


def test_another_file_of_that_name_does_not_take_its_place() -> None:
    Path("cat.png").write_bytes(b"a cat")
    first = payload(files=["10.image=cat.png"])["files"]["10.image"]
    Path("cat.png").write_bytes(b"a dog")
    second = payload(files=["10.image=cat.png"])["files"]["10.image"]
    assert first != second
    assert path_of(first).read_bytes() == b"a cat"
    Path("cat.png").write_bytes(b"a cat")
    assert payload(files=["10.image=cat.png"])["files"]["10.image"] == first


def test_a_reference_is_left_as_it_is() -> None:
    url = "https://example.com/cat.png?a=b"
    assert payload(files=[f"10.image={url}"])["files"] == {"10.image": url}


def test_nothing_is_copied_for_a_workflow_that_is_refused(tmp_path: Path) -> None:
    Path("cat.png").write_bytes(b"a cat")
    with pytest.raises(InvalidRequest, match=r"did you mean '10\.image'"):
        payload(files=["10.imag=cat.png"])
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["10.image=no.png"], "there is no file 'no.png'"),
        (["10.image=data:image/png;base64,AAAA"], "there is no file 'data:"),
        (["10.image"], "write --file NODE.NAME=VALUE"),
    ],
)
def test_a_file_that_is_not_there_is_named(files: list[str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        payload(files=files)


def test_what_the_canvas_saves_is_refused_with_the_way_to_export_it() -> None:
    with pytest.raises(InvalidRequest, match=r"Export \(API\)"):
        payload(document={"nodes": [], "links": [], "version": 0.4})


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "is not a workflow: "), ("[1]", "must be a JSON object"), ("[" * 100_000, "is not a workflow")],
)
def test_a_file_that_is_no_workflow_is_named(text: str, told: str) -> None:
    Path("workflow.json").write_text(text)
    with pytest.raises(InvalidRequest, match=told) as caught:
        payload_of("comfyui", {}, WorkflowOptions(workflow="workflow.json"))
    assert "workflow.json" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"'no\.json' cannot be read: No such file"):
        payload_of("comfyui", {}, WorkflowOptions(workflow="no.json"))


def test_a_workflow_and_a_payload_are_not_both_taken() -> None:
    with pytest.raises(InvalidRequest, match="leave one out"):
        payload(given={"workflow": WORKFLOW})


def test_values_may_be_set_in_a_payload_too() -> None:
    made = payload_of("comfyui", {"workflow": WORKFLOW}, WorkflowOptions(values=["3.seed=9"]))
    assert made == {"workflow": WORKFLOW, "set": {"3.seed": 9}}


def test_other_types_of_jobs_have_no_workflow() -> None:
    assert payload_of("demo", [1, 2], WorkflowOptions()) == [1, 2]
    for asked in (
        WorkflowOptions(workflow="w.json"),
        WorkflowOptions(values=["a.b=1"]),
        WorkflowOptions(files=["a.b=c"]),
        WorkflowOptions(save_to=Path()),
    ):
        with pytest.raises(InvalidRequest, match="jobs of type comfyui, and this one is of type 'demo'"):
            payload_of("demo", {}, asked)


def test_the_digest_of_a_file_is_in_its_place() -> None:
    Path("cat.png").write_bytes(b"a cat")
    uri = payload(files=["10.image=cat.png"])["files"]["10.image"]
    assert sha256(b"a cat").hexdigest()[:32] in uri
