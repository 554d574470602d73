"""The payload of a ComfyUI job: what is read, what is set, and what is refused with which words."""

import pytest

from herdsman.connectors.comfyui.workflow import InputFile, read_order
from herdsman.errors import InvalidRequest
from tests.support.comfyui_workflows import render


@pytest.mark.parametrize("path", ["3.seed", "3.inputs.seed", "KSampler.seed", "Sampler.seed", "Sampler.inputs.seed"])
def test_an_input_is_set_by_id_class_or_title(path: str) -> None:
    changed = read_order({"workflow": render(seed=1), "set": {path: 7}}).workflow
    assert changed["3"]["inputs"]["seed"] == 7


def test_a_title_may_hold_dots() -> None:
    changed = read_order({"workflow": render(), "set": {"Prompt v1.5.text": "a dog"}}).workflow
    assert changed["6"]["inputs"]["text"] == "a dog"


def test_the_payload_itself_is_left_as_it_was() -> None:
    payload = {"workflow": render(seed=1), "set": {"3.seed": 7}}
    read_order(payload)
    assert payload["workflow"] == render(seed=1)


def test_a_name_that_two_nodes_have_is_refused_with_their_ids() -> None:
    workflow = render() | {"7": render()["6"]}
    with pytest.raises(InvalidRequest, match=r"'CLIPTextEncode' means 2 nodes: 6, 7"):
        read_order({"workflow": workflow, "set": {"CLIPTextEncode.text": "x"}})


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("3.sede", r"node '3' \(KSampler\) has no input for '3.sede'; it has: seed.*did you mean '3.seed'"),
        ("KSamplr.seed", "no node for 'KSamplr.seed'"),
        ("33.seed", r"no node for '33.seed'; did you mean '3.seed'\?"),
        ("seed", "no node for 'seed'"),
        ("", "no node for ''"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_the_nearest(path: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_order({"workflow": render(), "set": {path: 1}})


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({}, "needs under 'workflow'"),
        ({"workflow": {}}, "needs under 'workflow'"),
        ({"workflow": {"nodes": [], "links": []}}, r"Export \(API\)"),
        ({"workflow": {"1": {"inputs": {}}}}, "node '1' of the workflow lacks its class_type"),
        ({"workflow": {"1": {"class_type": "A"}}}, "node '1' of the workflow lacks its inputs"),
        ({"workflow": {"1": 5}}, "node '1' of the workflow lacks its class_type"),
        ({"workflow": render(), "sets": {}}, "has no 'sets'; it may have: workflow, set, files, expect"),
        ({"workflow": render(), "set": {"3.cfg": float("nan")}}, "something that JSON cannot"),
        ({"workflow": render(), "set": {"6.text": "\ud800"}}, "something that JSON cannot"),
        ({"workflow": render(), "set": []}, "'set' must be an object"),
        ({"workflow": render(), "expect": "9"}, "'expect' must be a list"),
        ({"workflow": render(), "expect": ["99"]}, "'expect' names '99'"),
    ],
)
def test_a_wrong_payload_is_refused_in_words(payload: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_order(payload)


@pytest.mark.parametrize("reference", ["data:image/png;base64,AAAA", "iVBORw0KGgo", "", 5, None, "ftp://h/x"])
def test_a_file_is_given_by_reference_and_never_as_such(reference: object) -> None:
    with pytest.raises(InvalidRequest, match=r"'9.images' must be a reference .* data: or base64"):
        read_order({"workflow": render(), "files": {"9.images": reference}})


def test_files_and_expected_nodes_are_found_by_name_too() -> None:
    order = read_order({"workflow": render(), "files": {"Save.images": "s3://b/x.png"}, "expect": ["Save"]})
    assert order.files == (InputFile(node="9", name="images", reference="s3://b/x.png"),)
    assert order.expect == ("9",)
