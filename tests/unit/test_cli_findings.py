"""What `herdsman doctor` makes of what it saw."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.cli import findings
from herdsman.cli.doctor import examine
from herdsman.cli.findings import Finding, State, ok
from herdsman.cli.machine import LEAST, LITTLE, Place, write_fault
from herdsman.errors import StoreUnavailable
from herdsman.fleet.model import GpuDevice
from herdsman.providers.runpod.answers import GpuType
from herdsman.settings import Settings

STATE_DIR = Place(setting="LOCAL_STATE_DIR", directory=Path("/var/herd"))
CARD = GpuDevice(index=0, uuid="GPU-1", name="NVIDIA L4", total_mb=24_576, used_mb=0, utilisation=0)


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        (0.1, State.OK),
        (-1.9, State.OK),
        (2, State.WARN),
        (-29, State.WARN),
        (30, State.FAIL),
        (-90, State.FAIL),
    ],
)
def test_a_clock_that_is_off_is_worth_a_word_and_one_that_is_wrong_a_failure(seconds: float, state: State) -> None:
    found = findings.clock(timedelta(seconds=seconds), "PostgreSQL")
    assert found.status is state
    assert ("ahead of" if seconds > 0 else "behind") in found.said
    assert bool(found.fix) is (state is not State.OK)


def test_a_database_without_a_clock_goes_by_ours() -> None:
    assert findings.clock(None, "SQLite").status is State.OK


@pytest.mark.parametrize(("free", "state"), [(LEAST - 1, State.FAIL), (LITTLE - 1, State.WARN), (LITTLE, State.OK)])
def test_little_room_is_told_before_there_is_none(free: int, state: State) -> None:
    assert findings.room(STATE_DIR, None, free).status is state


def test_a_place_that_cannot_be_written_to_names_the_setting(tmp_path: Path) -> None:
    nowhere = Place(setting="DATABASE_URL", directory=Path("/proc/herd/data"))
    fault = write_fault(nowhere)
    assert fault is not None
    found = findings.room(nowhere, fault, LITTLE)
    assert (found.status, "set DATABASE_URL to another directory" in found.fix) == (State.FAIL, True)
    fine = Place(setting="DATABASE_URL", directory=tmp_path / "not" / "there" / "yet")
    assert write_fault(fine) is None
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("mode", "state"),
    [(None, State.OK), (0o100600, State.OK), (0o100640, State.FAIL), (0o100604, State.FAIL)],
)
def test_a_secret_that_others_can_read_is_none(mode: int | None, state: State) -> None:
    found = findings.secret_file(Path("/var/herd/admin-token"), mode)
    assert found.status is state
    assert (found.fix == "chmod 600 /var/herd/admin-token") is (state is State.FAIL)


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ("rpa_ABCDEFGHIJKLMNOPQRSTUVWXYZ123456", State.OK),
        ("'rpa_ABCDEFGHIJKLMNOPQRSTUVWXYZ'", State.FAIL),
        ("rpa_ABCDEFGHIJKLMNOPQRSTUVWXYZ ", State.FAIL),
        ("changeme", State.WARN),
    ],
)
def test_a_key_is_judged_by_its_shape_and_never_shown(key: str, state: State) -> None:
    found = findings.runpod_key(key)
    assert found.status is state
    assert key.strip(" '") not in found.said + found.fix


def test_gpus_are_named_where_they_are_needed() -> None:
    real = findings.gpus(local=True, fake=0, devices=[CARD], driver="550.54")
    assert real.said == "NVIDIA L4 (24 GB); driver 550.54"
    assert findings.gpus(local=True, fake=2, devices=(), driver=None).status is State.OK
    assert findings.gpus(local=False, fake=0, devices=(), driver=None).status is State.OK
    none = findings.gpus(local=True, fake=0, devices=(), driver=None)
    assert (none.status, "--fake-gpus 2" in none.fix) == (State.WARN, True)
    assert "550.54 shows no GPU" in findings.gpus(local=True, fake=0, devices=(), driver="550.54").said


def test_a_port_is_free_or_ours_or_taken() -> None:
    assert findings.port("127.0.0.1", 0, ours=None, taken=None).status is State.OK
    assert findings.port("127.0.0.1", 8765, ours=None, taken=None).said == "127.0.0.1:8765 is free"
    assert "process 12" in findings.port("127.0.0.1", 8765, ours=12, taken=None).said
    taken = findings.port("127.0.0.1", 8765, ours=None, taken="Address already in use")
    assert (taken.status, "--port 0" in taken.fix) == (State.FAIL, True)


def test_an_old_schema_says_what_to_do() -> None:
    old = findings.schema("the database has schema 0001, we need 0007: run herdsman db upgrade", "0007")
    assert (old.said, old.fix) == ("the database has schema 0001, we need 0007", "run herdsman db upgrade")
    assert findings.schema(None, "0007").status is State.OK


def test_whatever_fails_the_others_are_told() -> None:
    def check_away(_: Settings) -> Iterator[Finding]:
        yield ok("away", "half of it is fine")
        raise StoreUnavailable("nobody is at home")

    def check_broken(_: Settings) -> Iterator[Finding]:
        raise ZeroDivisionError
        yield

    def check_hanging(_: Settings) -> Iterator[Finding]:
        time.sleep(30)
        yield ok("hanging", "too late")

    def check_fine(_: Settings) -> Iterator[Finding]:
        yield ok("fine", "all is well")

    found = examine([check_away, check_broken, check_hanging, check_fine], longest_s=0.2)
    assert [(each.about, each.status) for each in found] == [
        ("away", State.OK),
        ("away", State.FAIL),
        ("broken", State.FAIL),
        ("hanging", State.FAIL),
        ("fine", State.OK),
    ]
    assert all(each.fix for each in found if each.status is State.FAIL)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("ghcr.io/me/worker:1.2", "ok"),
        ("localhost:5000/worker:try", "ok"),
        (f"me/worker@sha256:{'a' * 64}", "ok"),
        ("me/worker", "warn"),
        ("localhost:5000/worker", "warn"),
        ("https://ghcr.io/me/worker:1", "fail"),
        ("Me/Worker:1", "fail"),
        ("me/worker :1", "fail"),
    ],
)
def test_the_name_of_an_image_is_looked_at(name: str, state: str) -> None:
    assert findings.image(name, None).status == state


def test_gpu_types_are_those_of_the_catalog() -> None:
    offered = (
        GpuType(id="NVIDIA L4", price={"secure": 0.49}, availability="HIGH"),
        GpuType(id="NVIDIA A40", availability="NONE"),
    )
    found = list(findings.gpu_types(("NVIDIA L4", "NVIDIA A40", "L4"), offered, "SECURE"))
    assert [each.status for each in found] == ["ok", "warn", "fail"]
    assert "0.49 USD an hour" in found[0].said
    assert "NVIDIA L4" in found[2].fix


@pytest.mark.parametrize(
    ("answer", "addresses", "here", "state"),
    [
        (200, {"93.184.216.34"}, False, "ok"),
        (200, {"10.0.0.7"}, False, "warn"),
        (200, {"fe80::1%eth0"}, False, "warn"),
        (200, {"127.0.0.1"}, True, "ok"),
        (502, {"93.184.216.34"}, False, "fail"),
    ],
)
def test_an_address_that_pods_may_not_reach_is_named(answer: int, addresses: set[str], here: bool, state: str) -> None:
    assert findings.address("https://api.example.com", answer, addresses, here=here).status == state


@pytest.mark.parametrize(
    ("said", "gone", "state"),
    [("reached", True, "ok"), ("timed out", True, "fail"), (None, True, "fail"), ("reached", False, "fail")],
)
def test_what_a_pod_found_is_told(said: str | None, gone: bool, state: str) -> None:
    assert findings.from_a_pod("https://api.example.com", "pod1", said, gone=gone).status == state


@pytest.mark.parametrize(
    ("doubt", "hint", "state"),
    [("", "", "ok"), ("it may be a copy; adopt it", "", "fail"), ("", "w1", "warn")],
)
def test_a_database_that_is_to_be_adopted_is_named(doubt: str, hint: str, state: str) -> None:
    assert findings.adopted(doubt, "", hint).status == state
