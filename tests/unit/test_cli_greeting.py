"""What a person reads when the control plane has started, and what `submit` makes of a payload."""

from pathlib import Path

import pytest

from herdsman.cli.jobs import numbered
from herdsman.cli.up import gpus_in_words, pools_in_words, print_database
from herdsman.context import Services
from herdsman.db import checks
from herdsman.db.upgrade import upgrade
from herdsman.errors import InvalidRequest
from herdsman.fleet.model import GpuDevice
from herdsman.jobs.model import JobPolicy
from herdsman.server.wiring import new_job_id
from herdsman.settings import load_settings
from tests.support.databases import opened

CARD = GpuDevice(index=0, uuid="GPU-1", name="NVIDIA L4", total_mb=24_576, used_mb=0, utilisation=0)


def test_gpus_are_named_real_or_not() -> None:
    assert gpus_in_words(0, (CARD, CARD), chosen=False) == "NVIDIA L4 (24 GB), NVIDIA L4 (24 GB)"
    assert gpus_in_words(2, (), chosen=True).startswith("simulating 2")
    assert gpus_in_words(2, (), chosen=False).startswith("no GPU found: simulating 2")
    assert "--fake-gpus 2" in gpus_in_words(0, (), chosen=True)


def test_the_fleet_is_no_larger_than_the_machine(tmp_path: Path) -> None:
    assert pools_in_words(load_settings({"FAKE_GPUS": "2"}, tmp_path)) == (
        "2 workers (one for each GPU), policy threshold"
    )
    assert pools_in_words(load_settings({"FAKE_GPUS": "20"}, tmp_path)) == "2 to 10 workers, policy threshold"


def test_each_of_many_gets_its_number() -> None:
    assert numbered('{"seed": {n}, "name": "sheep {n}"}', 2) == [
        {"seed": 1, "name": "sheep 1"},
        {"seed": 2, "name": "sheep 2"},
    ]
    assert numbered("{}", 3) == [{}, {}, {}]
    with pytest.raises(InvalidRequest, match="--payload is not JSON"):
        numbered("{m}", 1)


def test_an_old_sqlite_is_a_matter_for_the_doctor_and_not_for_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "SAFE_SQLITE", (99,))
    with opened(f"sqlite:///{tmp_path}/herd.db") as database:
        assert [note for note in checks.inspect_server(database).notes if "rare loss" in note]
        upgrade(database)
        print_database(Services(database, JobPolicy(), new_job_id), "0001")
    assert "warning" not in capsys.readouterr().out
