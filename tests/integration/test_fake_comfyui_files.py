"""Files, and what the service says of itself: the rest of the fake ComfyUI's routes."""

import hashlib
from collections.abc import Iterator

import httpx
import pytest

from herdsman.testing.fakes.comfyui import CHECKPOINTS
from herdsman.testing.fakes.comfyui.nodes import png
from tests.support.comfyui_client import Talk, node, short, talking

MEGABYTE = 1024 * 1024


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talking(speed=50) as talk:
        yield talk


def upload(talk: Talk, name: str, content: bytes, **fields: str) -> httpx.Response:
    return talk.http.post("/upload/image", files={"image": (name, content)}, data=fields)


def load(name: str) -> dict[str, object]:
    return {
        "1": node("LoadImage", image=name),
        "2": node("SaveImage", images=["1", 0], filename_prefix="loaded"),
    }


def test_an_upload_is_kept_byte_by_byte_and_can_be_loaded(talk: Talk) -> None:
    content = png("input") + b"\r\n--\r\n\r\n" + bytes(range(256))
    answer = upload(talk, "in.png", content, subfolder="herd")
    assert answer.json() == {"name": "in.png", "subfolder": "herd", "type": "input"}
    place = {"filename": "in.png", "subfolder": "herd", "type": "input"}
    assert talk.http.get("/view", params=place).content == content
    _, entry = talk.run(load("herd/in.png"))
    assert entry["status"]["status_str"] == "success"


def test_the_result_depends_on_the_content_and_not_on_the_name(talk: Talk) -> None:
    upload(talk, "a.png", png("one"))
    upload(talk, "b.png", png("two"))
    names = ["a.png", "b.png"]
    results = [talk.run(load(name))[1]["outputs"]["2"]["images"][0]["filename"] for name in names]
    assert talk.fake.content(results[0]) != talk.fake.content(results[1])


def test_the_same_name_is_renamed_for_other_bytes_and_reused_for_the_same(talk: Talk) -> None:
    one, two, three = png("one"), png("two"), png("three")
    names = [upload(talk, "in.png", content).json()["name"] for content in (one, two, three, one, two)]
    assert names == ["in.png", "in (1).png", "in (2).png", "in.png", "in (1).png"]
    assert upload(talk, "in.png", three, overwrite="true").json()["name"] == "in.png"
    assert talk.fake.content("in.png", "", "input") == three


def test_an_upload_that_leads_out_of_the_folder_is_refused(talk: Talk) -> None:
    assert upload(talk, "../x.png", b"x").status_code == 400
    assert upload(talk, "x.png", b"x", subfolder="../../etc").status_code == 400
    assert upload(talk, "x.png", b"x", subfolder="/etc").status_code == 400
    assert talk.http.post("/upload/image", content=b"no form").status_code == 400


def test_an_upload_over_the_limit_is_too_large() -> None:
    with talking(max_upload_mb=1) as talk:
        assert upload(talk, "big.png", bytes(MEGABYTE)).status_code == 413
        assert talk.http.get("/features").json()["max_upload_size"] == MEGABYTE


def test_garbage_uploads_well_and_fails_in_the_node(talk: Talk) -> None:
    assert upload(talk, "in.png", b"garbage").status_code == 200
    _, entry = talk.run(load("in.png"))
    kind, error = entry["status"]["messages"][-1]
    assert (kind, error["exception_type"]) == ("execution_error", "PIL.UnidentifiedImageError")


def test_a_file_is_shown_with_its_kind_and_in_parts(talk: Talk) -> None:
    _, entry = talk.run(short())
    place = entry["outputs"]["2"]["images"][0]
    whole = talk.http.get("/api/view", params=place)
    assert whole.headers["content-type"] == "image/png"
    assert "last-modified" in whole.headers
    assert whole.content == talk.fake.content(**place)
    part = talk.http.get("/view", params=place, headers={"Range": "bytes=4-9"})
    assert (part.status_code, part.content) == (206, whole.content[4:10])
    rest = talk.http.get("/view", params=place, headers={"Range": "bytes=10-"})
    assert rest.content == whole.content[10:]
    assert rest.headers["content-range"] == f"bytes 10-{len(whole.content) - 1}/{len(whole.content)}"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"filename": "none.png"}, 404),
        ({"filename": "../../etc/passwd"}, 400),
        ({"filename": "/etc/passwd"}, 400),
        ({"filename": "x.png", "subfolder": "../.."}, 403),
        ({"filename": "x.png", "type": "etc"}, 400),
    ],
)
def test_what_is_not_there_or_elsewhere_is_not_shown(talk: Talk, query: dict[str, str], status: int) -> None:
    assert talk.http.get("/view", params=query).status_code == status


def test_saving_outside_the_output_folder_is_an_error_of_the_node(talk: Talk) -> None:
    workflow = short()
    workflow["2"]["inputs"]["filename_prefix"] = "../outside"
    _, entry = talk.run(workflow)
    assert entry["status"]["messages"][-1][0] == "execution_error"


def test_a_prefix_may_hold_folders_and_names_are_counted(talk: Talk) -> None:
    workflow = short()
    workflow["2"]["inputs"]["filename_prefix"] = "jobs/7/out"
    _, first = talk.run(workflow)
    workflow["1"]["inputs"]["other"] = True
    _, second = talk.run(workflow)
    names = [entry["outputs"]["2"]["images"][0] for entry in (first, second)]
    assert [name["filename"] for name in names] == ["out_00001_.png", "out_00002_.png"]
    assert names[0]["subfolder"] == "jobs/7"


def test_a_huge_output_is_streamed_and_the_same_each_time(talk: Talk) -> None:
    _, entry = talk.run({"1": node("HerdsmanHuge", megabytes=20)})
    place = entry["outputs"]["1"]["files"][0]
    digests: list[str] = []
    for _ in range(2):
        digest, length = hashlib.sha256(), 0
        with talk.http.stream("GET", "/view", params=place) as answer:
            assert answer.headers["content-length"] == str(20 * MEGABYTE)
            for piece in answer.iter_bytes():
                digest.update(piece)
                length += len(piece)
        assert length == 20 * MEGABYTE
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]
    across = talk.http.get("/view", params=place, headers={"Range": f"bytes={MEGABYTE - 2}-{MEGABYTE + 1}"})
    assert len(across.content) == 4


def test_who_leaves_in_the_middle_of_a_huge_output_does_no_harm(talk: Talk) -> None:
    _, entry = talk.run({"1": node("HerdsmanHuge", megabytes=5000)})
    with talk.http.stream("GET", "/view", params=entry["outputs"]["1"]["files"][0]) as answer:
        next(answer.iter_bytes())
    assert talk.http.get("/queue").status_code == 200


@pytest.mark.parametrize("name", ["../../etc/x", "/etc/x", "a b.png", 'q"\n.png', "ü.png"])
def test_any_name_can_be_reported_and_is_handed_out(talk: Talk, name: str) -> None:
    _, entry = talk.run({"1": node("HerdsmanName", filename=name)})
    place = entry["outputs"]["1"]["images"][0]
    assert place["filename"] == name
    answer = talk.http.get("/view", params=place)
    assert answer.status_code == 200
    assert answer.content.startswith(b"\x89PNG")


def test_texts_are_outputs_too(talk: Talk) -> None:
    _, entry = talk.run({"1": node("HerdsmanText", text="hello")})
    assert entry["outputs"] == {"1": {"text": ["hello"]}}


def test_the_machine_is_described(talk: Talk) -> None:
    stats = talk.http.get("/system_stats").json()
    assert stats["system"]["comfyui_version"] == "0.7.0"
    assert {"os", "ram_total", "ram_free", "python_version", "pytorch_version", "argv"} <= set(stats["system"])
    device = stats["devices"][0]
    assert {"name", "type", "index", "vram_total", "vram_free", "torch_vram_total"} <= set(device)
    before = device["vram_free"]
    talk.run(short())
    assert talk.http.get("/system_stats").json()["devices"][0]["vram_free"] < before
    talk.http.post("/free", json={"free_memory": True})
    assert talk.http.get("/system_stats").json()["devices"][0]["vram_free"] == before


def test_the_load_is_the_cheapest_look(talk: Talk) -> None:
    assert talk.http.get("/prompt").json() == {"exec_info": {"queue_remaining": 0}}
    talk.submit({"1": node("HerdsmanHang")})
    talk.submit(short())
    assert talk.http.get("/api/prompt").json() == {"exec_info": {"queue_remaining": 2}}


def test_nodes_and_models_are_listed(talk: Talk) -> None:
    upload(talk, "in.png", png("x"))
    sampler = talk.http.get("/object_info/KSampler").json()["KSampler"]
    assert sampler["input"]["required"]["steps"] == ["INT", {"min": 1, "max": 10000}]
    assert sampler["output"] == ["LATENT"]
    everything = talk.http.get("/object_info").json()
    assert everything["SaveImage"]["output_node"] is True
    assert everything["LoadImage"]["input"]["required"]["image"][0] == ["in.png"]
    assert everything["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0] == list(CHECKPOINTS)
    assert talk.http.get("/object_info/NoSuchNode").json() == {}
    assert talk.http.get("/models/checkpoints").json() == list(CHECKPOINTS)
    assert talk.http.get("/models/nowhere").status_code == 404
    assert talk.http.get("/nowhere").status_code == 404
