"""What Runpod would refuse, the fake refuses: a client that sends it fails in the tests, not on the bill."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from herdsman.testing.fakes.runpod import FakeRunpod
from tests.support.runpod import KEY, L4

BODY: dict[str, Any] = {"name": "one", "image": "some/image", "gpu": {"id": L4, "count": 1}, "disk": 20}


@pytest.fixture
def fake() -> Iterator[FakeRunpod]:
    with FakeRunpod(key=KEY, run_commands=False) as fake:
        yield fake


@pytest.fixture
def wild(fake: FakeRunpod) -> Iterator[httpx.Client]:
    """A client that may send what the specification forbids."""
    headers = {"Authorization": f"Bearer {fake.key}"}
    with httpx.Client(base_url=fake.url, headers=headers, transport=httpx.HTTPTransport()) as client:
        yield client


WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "an unknown field": ({"bogus": 1, "other": 2}, 422, "$.other"),
    "an unknown field of gpu": ({"gpu": {"id": L4, "count": 1, "spot": True}}, 422, "$.gpu.spot"),
    "a wrong type": ({"disk": "20"}, 422, "$.disk"),
    "a truth for a number": ({"disk": True}, 422, "$.disk"),
    "no name": ({"name": ""}, 422, "$.name"),
    "no image": ({"image": ""}, 422, "'image'"),
    "a wrong cloud": ({"cloud": "ALL"}, 422, "$.cloud"),
    "numbers in env": ({"env": {"A": 1}}, 422, "$.env"),
    "two volumes": ({"mounts": {"network": [{"volumeId": "a", "path": "/a"}] * 2}}, 422, "$.mounts"),
    "gpu and cpu": ({"cpu": {"id": "cpu3c", "vcpuCount": 2}}, 400, "exactly one of gpu or cpu"),
    "two kinds of mount": (
        {
            "mounts": {
                "persistent": {"size": 10, "path": "/a"},
                "network": [{"volumeId": "vol1aaaa", "path": "/a"}],
            }
        },
        400,
        "mutually exclusive",
    ),
    "two bounds for CUDA": (
        {"gpu": {"id": L4, "count": 1, "minCudaVersion": "12.1", "allowedCudaVersions": ["12.1"]}},
        400,
        "mutually exclusive",
    ),
    "too many variables": ({"env": {f"V{number}": "" for number in range(51)}}, 400, "at most 50"),
    "an unknown GPU": ({"gpu": {"id": "L4", "count": 1}}, 400, "unknown GPU type"),
    "an odd port": ({"ports": ["22"]}, 400, "port/protocol"),
    "no count": ({"gpu": {"id": L4}}, 400, "does not have the resources"),
    "an unknown template": ({"templateId": "nosuch"}, 404, "template not found"),
    "an unknown volume": ({"mounts": {"network": [{"volumeId": "x", "path": "/a"}]}}, 404, "not found"),
    "a volume elsewhere": (
        {"mounts": {"network": [{"volumeId": "vol1aaaa", "path": "/a"}]}, "dataCenterIds": ["US-KS-2"]},
        400,
        "another data center",
    ),
}


@pytest.mark.parametrize(("wrong", "expected", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_body_is_refused(
    wrong: dict[str, Any], expected: int, said: str, wild: httpx.Client, fake: FakeRunpod
) -> None:
    answer = wild.post("/pods", json={**BODY, **wrong})
    assert answer.status_code == expected
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.text
    assert fake.ledger.pods == ()


def test_a_body_without_disk_gets_the_misleading_answer(wild: httpx.Client) -> None:
    answer = wild.post("/pods", json={key: value for key, value in BODY.items() if key != "disk"})
    assert (answer.status_code, "enough disk space" in answer.text) == (400, True)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"[" * 50_000])
def test_what_is_no_body_is_refused(body: bytes, wild: httpx.Client) -> None:
    assert wild.post("/pods", content=body).status_code == 422
