"""`herdsman doctor` in worlds that are well, and in worlds that are not."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from herdsman.testing.fakes.runpod import FakeRunpod, Fault
from tests.contract.test_sqlite_faults import damage
from tests.support.shell import CANARY, Shell
from tests.support.up_command import up


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.environment |= {"FAKE_GPUS": "2", "MIN_ACTIVE_GPUS": "0", "API_PORT": "0"}
    return shell


def examined(shell: Shell, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The status, and of each subject the worst that was found."""
    run = shell("doctor", "-o", "json", **environment)
    assert CANARY not in run.stdout + run.stderr
    assert "Traceback" not in run.stderr, run.stderr
    said: Any = json.loads(run.stdout)
    assert said["ok"] is (run.returncode == 0)
    worst: dict[str, dict[str, str]] = {}
    for each in sorted(said["checks"], key=lambda each: ("ok", "warn", "fail").index(each["status"])):
        worst[each["about"]] = each
    return run.returncode, worst


def test_a_machine_that_was_never_used_has_nothing_to_mend(shell: Shell) -> None:
    status, found = examined(shell)
    assert status == 0
    assert found["database"]["fix"] == "herdsman up creates it"
    assert not shell.database.exists(), "who only looks makes nothing"


def test_what_runs_is_found_well(shell: Shell) -> None:
    with up(shell):
        status, found = examined(shell)
        said = shell.said("doctor")
    assert status == 0
    assert found["schema"]["status"] == found["room"]["status"] == found["secrets"]["status"] == "ok"
    assert "the token is that of admin first" in found["server"]["said"]
    assert said.splitlines()[-1].endswith(" 0 failed")


def test_every_kind_of_database_is_looked_at_with_its_clock(shell: Shell, url: str) -> None:
    status, found = examined(shell, DATABASE_URL=url)
    assert (status, found["schema"]["status"], found["clock"]["status"]) == (0, "ok", "ok")


def test_a_damaged_file_is_found_and_no_replica_starts_on_it(shell: Shell) -> None:
    assert shell("db", "init").returncode == 0
    damage(shell.environment["DATABASE_URL"], "audit_entries")
    status, found = examined(shell)
    assert (status, found["database"]["status"]) == (1, "fail")
    assert found["database"]["fix"].startswith("stop everything that uses the file")
    for command in ("serve", "up"):
        assert "is damaged" in shell.refused(command)


def test_a_database_without_tables_says_how_to_make_them(shell: Shell) -> None:
    shell.database.touch()
    status, found = examined(shell)
    assert (status, found["schema"]["fix"]) == (1, "run herdsman db init")


def test_every_fault_is_told_with_its_cause_and_a_way_out(shell: Shell) -> None:
    """All at once: one that fails does not hide the others."""
    assert shell("db", "init").returncode == 0
    assert shell("token", "create", "ann").returncode == 0
    engine = create_engine(shell.environment["DATABASE_URL"])
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    pepper = shell.directory / ".local/state/herdsman/pepper"
    pepper.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, found = examined(
            shell,
            API_PORT=str(taken.getsockname()[1]),
            API_URL="http://127.0.0.1:1",
            API_TOKEN=CANARY,
            REDIS_URL=f"redis://:{CANARY}@127.0.0.1:1/0",
            PROVIDER="runpod",
            RUNPOD_API_KEY=f"'{CANARY}'",
            RUNPOD_API_URL="http://127.0.0.1:1",
            DEPLOYMENT_ID="doc",
        )
    assert status == 1
    assert {about: each["status"] for about, each in found.items()} == {
        "settings": "ok",
        "versions": "ok",
        "room": "ok",
        "clock": "ok",
        "gpu": "ok",
        "database": found["database"]["status"],
        "schema": "fail",
        "secrets": "fail",
        "redis": "fail",
        "provider": "fail",
        "port": "fail",
        "server": "fail",
    }
    assert found["schema"]["fix"] == "upgrade Herdsman"
    assert found["secrets"]["fix"] == f"chmod 600 {pepper}"
    assert "REDIS_URL" in found["redis"]["fix"]
    assert "--port 0" in found["port"]["fix"]
    assert all(each["fix"] for each in found.values() if each["status"] != "ok")


@pytest.mark.parametrize(
    ("environment", "about", "said"),
    [
        ({"DATABASE_URL": f"postgresql://u:{CANARY}@127.0.0.1:1/x"}, "database", "cannot be reached"),
        ({"DATABASE_URL": "sqlite:////proc/herd/herd.db"}, "room", "/proc/herd cannot be written to"),
        ({"MIN_ACTIVE_GPUS": "20"}, "settings", "must be <= MAX_ACTIVE_GPUS"),
        ({"PROVIDER": "runpod"}, "provider", "RUNPOD_API_KEY is not set"),
    ],
)
def test_what_cannot_work_is_named(shell: Shell, environment: dict[str, str], about: str, said: str) -> None:
    status, found = examined(shell, **environment)
    assert status == 1
    assert said in found[about]["said"]
    assert found[about]["fix"]


def test_a_file_that_is_no_database_is_named(shell: Shell) -> None:
    shell.database.write_text("these are not the pages you are looking for")
    status, found = examined(shell)
    assert (status, "file is not a database" in found["database"]["said"]) == (1, True)


@pytest.fixture
def rented(shell: Shell) -> Iterator[FakeRunpod]:
    """Everything that pods are rented with, at a Runpod of one's own."""
    with FakeRunpod() as fake:
        shell.environment |= {
            "PROVIDER": "runpod",
            "RUNPOD_API_URL": fake.url,
            "RUNPOD_API_KEY": fake.key,
            "RUNPOD_GPU_TYPE": "NVIDIA L4",
            "RUNPOD_WORKER_IMAGE": "herdsman/worker:try",
            "DEPLOYMENT_ID": "doc",
        }
        yield fake


def provider_checks(shell: Shell, *words: str, **environment: str) -> dict[str, str]:
    """What was said of the provider, with how bad it is."""
    run = shell("doctor", *(words or ("--provider",)), "-o", "json", **environment)
    checks: list[dict[str, str]] = json.loads(run.stdout)["checks"]
    return {each["said"]: each["status"] for each in checks if each["about"] == "provider"}


def test_what_pods_are_rented_with_is_looked_at_without_renting_one(shell: Shell, rented: FakeRunpod) -> None:
    found = provider_checks(shell)
    assert set(found.values()) == {"ok", "warn"}
    assert found["it is unknown whether pods reach the API"] == "warn"
    wrong = provider_checks(
        shell,
        RUNPOD_GPU_TYPE="L4",
        RUNPOD_WORKER_IMAGE="https://ghcr.io/me",
        RUNPOD_STORAGE_NAME="nowhere",
        API_URL="http://127.0.0.1:1",
    )
    failed = " | ".join(said for said, state in wrong.items() if state == "fail")
    assert "Runpod has no GPU type 'L4'" in failed
    assert "not a valid image name" in failed
    assert "there is no network volume 'nowhere'" in failed
    assert "http://127.0.0.1:1 does not answer" in failed
    rented.faults.turn_on(Fault.UNAUTHORIZED)
    assert any("401" in said and state == "fail" for said, state in provider_checks(shell).items())
    assert not rented.ledger.pods


def test_a_rented_fleet_without_an_address_is_named(shell: Shell, rented: FakeRunpod) -> None:
    del rented
    found = provider_checks(shell, "--provider", RUNPOD_API_URL="http://runpod.invalid/v2")
    assert found["API_URL is not set, so machines of runpod would not know whom to call"] == "fail"


def test_a_pod_that_is_rented_for_it_says_whether_it_reaches_the_api(shell: Shell, rented: FakeRunpod) -> None:
    with up(shell):
        found = provider_checks(shell, "--spend")
    assert any(said.startswith("a pod was rented, reached http://127.0.0.1:") for said in found)
    assert set(found.values()) == {"ok"}
    assert len(rented.ledger.pods) == 1
    assert not rented.ledger.alive
