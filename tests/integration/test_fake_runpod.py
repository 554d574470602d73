"""The fake Runpod itself: its API, its bills, its ledger. What it gets wrong, our own tests would never notice."""

import json
import socket
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod import FakeRunpod, Fault, Pace
from tests.support.runpod import KEY, L4, SPECIFICATION, Recording, deviations

BODY: dict[str, Any] = {"name": "one", "image": "some/image", "gpu": {"id": L4, "count": 1}, "disk": 20}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fake(clock: ManualClock) -> Iterator[FakeRunpod]:
    pace = Pace(provisioning=timedelta(seconds=10), starting=timedelta(seconds=20))
    with FakeRunpod(key=KEY, clock=clock, pace=pace, run_commands=False) as fake:
        yield fake


@pytest.fixture
def recording() -> Iterator[Recording]:
    recording = Recording()
    yield recording
    if SPECIFICATION.exists():
        assert [each for exchange in recording.exchanges for each in deviations(exchange)] == []


@pytest.fixture
def api(fake: FakeRunpod, recording: Recording) -> Iterator[httpx.Client]:
    """A client that holds every answer against the specification."""
    headers = {"Authorization": f"Bearer {fake.key}"}
    with httpx.Client(base_url=fake.url, headers=headers, transport=recording) as client:
        yield client


@pytest.fixture
def wild(fake: FakeRunpod) -> Iterator[httpx.Client]:
    """A client that may send what the specification forbids."""
    headers = {"Authorization": f"Bearer {fake.key}"}
    with httpx.Client(base_url=fake.url, headers=headers, transport=httpx.HTTPTransport()) as client:
        yield client


def create(api: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = api.post("/pods", json={**BODY, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def status(api: httpx.Client, pod: dict[str, Any]) -> str:
    return api.get(f"/pods/{pod['id']}").json()["status"]


def test_the_specification_is_at_hand() -> None:
    if not SPECIFICATION.exists():
        pytest.skip(f"{SPECIFICATION.name} is not here: nothing was held against Runpod's specification")


def test_a_pod_comes_to_life_step_by_step(api: httpx.Client, clock: ManualClock) -> None:
    pod = create(api)
    assert (pod["status"], pod["runtime"], pod["startedAt"]) == ("PROVISIONING", None, None)
    clock.advance(timedelta(seconds=10))
    assert status(api, pod) == "STARTING"
    clock.advance(timedelta(seconds=20))
    running = api.get(f"/pods/{pod['id']}").json()
    assert (running["status"], running["runtime"]["uptime"]) == ("RUNNING", 0)
    clock.advance(timedelta(seconds=7))
    assert api.get(f"/pods/{pod['id']}").json()["runtime"]["uptime"] == 7


def test_a_deleted_pod_is_gone(api: httpx.Client) -> None:
    pod = create(api)
    assert api.delete(f"/pods/{pod['id']}").status_code == 204
    assert api.get(f"/pods/{pod['id']}").status_code == 404
    assert api.delete(f"/pods/{pod['id']}").status_code == 404
    assert api.get("/pods").json()["pods"] == []


def test_actions_follow_the_status(api: httpx.Client, clock: ManualClock) -> None:
    pod = create(api)
    path = f"/pods/{pod['id']}/action"
    assert pod["actions"] == ["stop", "terminate"]
    assert api.post(path, json={"action": "restart"}).status_code == 409
    assert api.post(path, json={"action": "stop"}).json()["status"] == "EXITED"
    assert api.post(path, json={"action": "start"}).json()["status"] == "STARTING"
    clock.advance(timedelta(seconds=20))
    assert api.post(path, json={"action": "restart"}).json()["status"] == "STARTING"
    assert api.post(path, json={"action": "terminate"}).status_code == 204
    assert api.post(path, json={"action": "start"}).status_code == 404


def test_a_stopped_pod_may_find_no_gpu_again(api: httpx.Client, fake: FakeRunpod) -> None:
    path = f"/pods/{create(api)['id']}/action"
    api.post(path, json={"action": "stop"})
    fake.faults.turn_on(Fault.NO_CAPACITY)
    answer = api.post(path, json={"action": "start"})
    assert (answer.status_code, "not enough free GPUs" in answer.json()["detail"]) == (400, True)


def test_a_body_is_taken_in_full(api: httpx.Client) -> None:
    mounts = {"network": [{"volumeId": "vol2bbbb", "path": "/workspace"}]}
    pod = create(api, mounts=mounts, ports=["22/tcp", "80/http"], env={"A": "b"}, cmd=["x"], templateId="a1b2c3d4e5")
    assert (pod["mounts"], pod["env"], pod["dataCenterId"]) == (mounts, {"A": "b"}, "US-KS-2")


def test_pods_are_listed_newest_first_page_by_page(api: httpx.Client) -> None:
    for number in range(5):
        create(api, name=f"pod-{number}")
    seen: list[list[str]] = []
    cursor: str | None = None
    while True:
        page = api.get("/pods", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen.append([pod["name"] for pod in page["pods"]])
        cursor = page["pagination"]["nextCursor"]
        if not page["pagination"]["hasNextPage"]:
            break
    assert seen == [["pod-4", "pod-3"], ["pod-2", "pod-1"], ["pod-0"]]
    assert cursor is None


@pytest.mark.parametrize(
    "params", [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"cursor": "nonsense"}, {"cursor": "YTpi"}]
)
def test_a_wrong_page_is_refused_and_an_unknown_parameter_ignored(params: dict[str, str], wild: httpx.Client) -> None:
    assert wild.get("/pods", params=params).status_code == 422
    assert wild.get("/pods", params={"status": "RUNNING"}).status_code == 200


def test_names_are_not_unique(api: httpx.Client) -> None:
    assert create(api)["id"] != create(api)["id"]
    assert [pod["name"] for pod in api.get("/pods").json()["pods"]] == ["one", "one"]


def test_stock_is_told_in_the_catalog(api: httpx.Client, fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.NO_CAPACITY, only={L4})
    params = {"include": "AVAILABILITY", "product": "POD"}
    gpus = {gpu["id"]: gpu["availability"] for gpu in api.get("/catalog/gpus", params=params).json()["gpus"]}
    assert gpus.pop(L4) == "NONE"
    assert set(gpus.values()) == {"HIGH"}
    assert "availability" not in api.get("/catalog/gpus").json()["gpus"][0]
    assert api.get("/catalog/gpus", params={"include": "AVAILABILITY"}).status_code == 400


def test_volumes_are_listed(api: httpx.Client) -> None:
    listed = api.get("/network-volumes").json()["networkVolumes"]
    assert [volume["name"] for volume in listed] == ["models", "models-us"]


def test_life_is_billed_by_the_second_while_it_lasts(api: httpx.Client, fake: FakeRunpod, clock: ManualClock) -> None:
    pod = create(api, gpu={"id": L4, "count": 2})
    assert pod["cost"] == pytest.approx(0.98)
    clock.advance(timedelta(minutes=30))
    assert fake.ledger.cost == Decimal("0.49")
    api.post(f"/pods/{pod['id']}/action", json={"action": "stop"})
    clock.advance(timedelta(hours=5))
    assert api.get(f"/pods/{pod['id']}").json()["cost"] == 0
    assert fake.ledger.cost == Decimal("0.49")
    bill = api.get("/billing/pods", params={"bucketSize": "hour", "lastN": 24, "podId": pod["id"]}).json()
    assert bill["metadata"]["totals"]["totalAmount"] == bill["records"][0]["gpuAmount"] == pytest.approx(0.49)


def test_the_ledger_knows_what_was(api: httpx.Client, fake: FakeRunpod) -> None:
    first, second = create(api, name="a", env={"TOKEN": "canary"}), create(api, name="b")
    fake.add_foreign("theirs")
    api.delete(f"/pods/{first['id']}")
    assert [(life.name, life.alive, life.foreign) for life in fake.ledger.pods] == [
        ("a", False, False),
        ("b", True, False),
        ("theirs", True, True),
    ]
    assert (len(fake.ledger.alive), fake.ledger.most_alive) == (1, 2)
    told = httpx.get(f"{fake.origin}/_ledger").json()
    assert [pod["id"] for pod in told["pods"]][:2] == [first["id"], second["id"]]
    assert [request["operation"] for request in told["requests"]] == ["create", "create", "delete"]
    assert told["requests"][0]["body"]["env"] == {"TOKEN": "***"}
    assert "canary" not in json.dumps(told)


def test_faults_are_switched_over_http_while_it_runs(api: httpx.Client, fake: FakeRunpod) -> None:
    switches = f"{fake.origin}/_faults"
    assert httpx.put(switches, json={"storm_500": {"rate": 1, "only": ["list"]}}).status_code == 200
    assert api.get("/pods").status_code == 500
    assert api.get("/network-volumes").status_code == 200
    assert httpx.get(switches).json()["storm_500"]["only"] == ["list"]
    assert httpx.put(switches, json={}).status_code == 200
    assert api.get("/pods").status_code == 200
    for wrong in ('{"no_such": {}}', '{"slow": 1}', '{"slow": {"rat": 1}}', '{"slow": {"rate": "x"}}'):
        assert httpx.put(switches, content=wrong).status_code == 422


def test_only_the_key_opens(fake: FakeRunpod) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}):
        answer = httpx.get(f"{fake.url}/pods", headers=headers)
        assert (answer.status_code, answer.json()["title"]) == (401, "Unauthorized")


def test_the_key_of_a_pod_opens_that_pod_only(api: httpx.Client, fake: FakeRunpod) -> None:
    one, other = create(api), create(api)
    own = {"Authorization": f"Bearer rpa_pod_{one['id']}"}
    assert httpx.delete(f"{fake.url}/pods/{other['id']}", headers=own).status_code == 401
    assert httpx.get(f"{fake.url}/pods", headers=own).status_code == 401
    assert httpx.delete(f"{fake.url}/pods/{one['id']}", headers=own).status_code == 204


def test_every_answer_has_an_id_and_the_quota(api: httpx.Client) -> None:
    answers = [api.get("/pods"), api.get("/pods"), api.get("/pods/nosuch")]
    assert len({answer.headers["x-request-id"] for answer in answers}) == 3
    assert all('"minute";q=60;w=60' in answer.headers["RateLimit-Policy"] for answer in answers)


def test_what_is_no_call_is_not_found(wild: httpx.Client, fake: FakeRunpod) -> None:
    assert wild.patch("/pods/x", json={}).status_code == 404
    assert wild.get("/user/cluster/gpu/pods").status_code == 404
    assert httpx.get(f"{fake.origin}/v1/pods").status_code == 404


def test_a_huge_body_is_not_read(fake: FakeRunpod) -> None:
    address = urlsplit(fake.url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as connection:
        connection.sendall(b"POST /v2/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_ids_and_places_follow_from_the_seed() -> None:
    def story(seed: int) -> list[tuple[str, str]]:
        with FakeRunpod(seed=seed, run_commands=False) as fake:
            headers = {"Authorization": f"Bearer {fake.key}"}
            pods = [httpx.post(f"{fake.url}/pods", json=BODY, headers=headers).json() for _ in range(3)]
            return [(pod["id"], pod["dataCenterId"]) for pod in pods]

    assert story(1) == story(1) != story(2)


def test_it_serves_until_the_end_of_the_block() -> None:
    with FakeRunpod() as fake:
        fake.faults.replace({"storm_500": {}})
        headers = {"Authorization": f"Bearer {fake.key}"}
        assert httpx.get(f"{fake.url}/pods", headers=headers).status_code == 500
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{fake.url}/pods")


def test_a_fake_that_runs_commands_is_not_open_to_others() -> None:
    with pytest.raises(ValueError, match="loopback only"):
        FakeRunpod(host="0.0.0.0")
    with FakeRunpod(host="0.0.0.0", run_commands=False):
        pass


def test_the_check_against_the_specification_can_fail(fake: FakeRunpod) -> None:
    if not SPECIFICATION.exists():
        pytest.skip(f"{SPECIFICATION.name} is not here")
    fake.faults.turn_on(Fault.ZERO_GPU)
    recording = Recording()
    headers = {"Authorization": f"Bearer {fake.key}"}
    with httpx.Client(base_url=fake.url, headers=headers, transport=recording) as client:
        client.post("/pods", json={**BODY, "bogus": 1})
        client.post("/pods", json=BODY)
        client.get("/pods", params={"nosuch": "1"})
    complaints = "\n".join(each for exchange in recording.exchanges for each in deviations(exchange))
    for expected in ("'bogus' was unexpected", "0 is less than the minimum of 1", "unknown parameter nosuch"):
        assert expected in complaints
