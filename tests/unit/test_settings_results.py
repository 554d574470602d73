"""The place for files: the same for every program of one machine."""

from pathlib import Path

import pytest

from herdsman.errors import InvalidSettings
from herdsman.settings import load_settings
from herdsman.settings.options import result_options, worker_environment

NOWHERE = Path("/nonexistent")


def test_files_lie_in_the_state_directory_unless_another_place_is_chosen(tmp_path: Path) -> None:
    usual = load_settings({"LOCAL_STATE_DIR": str(tmp_path)}, NOWHERE)
    assert result_options(usual).place == str(tmp_path / "results")
    chosen = load_settings({"LOCAL_STATE_DIR": str(tmp_path), "RESULT_STORE": "/data/files"}, NOWHERE)
    assert result_options(chosen).place == "/data/files"
    bucket = load_settings({"RESULT_STORE": "s3://pail/herd"}, NOWHERE)
    assert result_options(bucket).place == "s3://pail/herd"


def test_a_home_or_a_relative_path_becomes_a_whole_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for typed in ("~/files", "files"):
        assert result_options(load_settings({"RESULT_STORE": typed}, NOWHERE)).place == str(tmp_path / "files")


def test_the_key_and_its_secret_belong_together() -> None:
    for name in ("RESULT_S3_KEY_ID", "RESULT_S3_SECRET"):
        with pytest.raises(InvalidSettings, match="RESULT_S3_KEY_ID and RESULT_S3_SECRET belong together"):
            result_options(load_settings({name: "x"}, NOWHERE))


KEYED = {"RESULT_STORE": "s3://pail/herd", "RESULT_S3_KEY_ID": "id", "RESULT_S3_SECRET": "hush"}


def test_a_worker_beside_us_puts_files_where_we_look_for_them(tmp_path: Path) -> None:
    """It is told what we were told, and knows the rest by itself."""
    given = {"LOCAL_STATE_DIR": str(tmp_path), "RESULT_ALLOW_HOSTS": "a.example,b.example:80"}
    for more in ({}, {"RESULT_STORE": str(tmp_path / "files")}, KEYED):
        ours = load_settings({**given, **more}, NOWHERE)
        passed_on = {
            name: value.get_secret_value()
            for name, value in worker_environment(ours).items()
            if name.startswith("HERDSMAN_")
        }
        assert result_options(load_settings(passed_on, NOWHERE)) == result_options(ours)
