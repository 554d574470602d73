"""`herdsman config` shows every value and its origin, and never a secret."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from herdsman.cli.config import config
from herdsman.errors import InvalidSettings
from herdsman.settings import RELATIONS
from herdsman.settings.model import CATALOGUE, groups

CANARY = "canary-7f3a"
SECRETS = {
    "RUNPOD_API_KEY": CANARY,
    "ADMIN_API_KEY": CANARY,
    "API_TOKEN": CANARY,
    "BOOTSTRAP_TOKEN": CANARY,
    "TOKEN_PEPPER": CANARY,
    "RUNPOD_ENV_VARS": json.dumps({"HF_TOKEN": CANARY}),
    "DATABASE_URL": f"mysql://me:{CANARY}@db/jobs?password={CANARY}",
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("HERDSMAN_") or name.removesuffix("_FILE") in CATALOGUE:
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, **env: str) -> str:
    app = typer.Typer()
    app.command()(config)
    result = CliRunner().invoke(app, list(arguments), env=env, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("flags", [("-o", "json"), ("--output", "json"), ("--json",)])
def test_json_is_keyed_by_the_names_people_type(flags: tuple[str, ...]) -> None:
    """With an empty environment."""
    printed = json.loads(run(*flags))
    assert set(printed) == set(CATALOGUE)
    assert printed["MIN_ACTIVE_GPUS"] == {
        "value": 2,
        "default": 2,
        "origin": "default",
        "group": "scaling",
        "description": "Workers kept even when there is nothing to do.",
    }


def test_origins_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MAX_ATTEMPTS=4\n")
    (tmp_path / "herdsman.toml").write_text("claim_ttl_sec = 45\n")
    printed = json.loads(run("--json", MIN_ACTIVE_GPUS="3"))
    told = {name: (entry["value"], entry["origin"]) for name, entry in printed.items()}
    assert told["MIN_ACTIVE_GPUS"] == (3, "environment")
    assert told["MAX_ATTEMPTS"] == (4, ".env")
    assert told["CLAIM_TTL_SEC"] == (45, "herdsman.toml")
    assert told["MAX_ACTIVE_GPUS"] == (10, "default")


def test_the_table_has_every_setting_under_its_group_in_eighty_columns_without_colour() -> None:
    lines = run(MIN_ACTIVE_GPUS="3", **SECRETS).splitlines()
    first_words = [line.split()[0] for line in lines if line.strip()]
    assert [word for word in first_words if word in CATALOGUE] == list(CATALOGUE)
    assert [word for word in first_words if word in groups()] == list(groups())
    assert any(line.split() == ["MIN_ACTIVE_GPUS", "3", "environment", "2"] for line in lines)
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("flags", [(), ("--json",), ("--explain",), ("--explain", "--json")])
def test_no_secret_is_printed_in_any_mode(flags: tuple[str, ...]) -> None:
    printed = run(*flags, **SECRETS)
    assert CANARY not in printed.replace("\n", "").replace(" ", "")


def test_a_secret_is_shown_as_set_or_not() -> None:
    printed = json.loads(run("--json", **SECRETS))
    assert printed["RUNPOD_API_KEY"]["value"] == "set (hidden)"
    assert printed["RESULT_S3_SECRET"]["value"] == "not set"
    assert printed["DATABASE_URL"]["value"] == "mysql+pymysql://me:***@db/jobs?password=***"


def test_explain_gives_each_relation_with_its_numbers_and_its_reason() -> None:
    printed = run("--explain", CLAIM_TTL_SEC="44", ORCH_CLAIM_IDLE_MS="1000")
    assert printed.count("ok: ") == len(RELATIONS) - 1
    assert "warning: stream entries outlive a heartbeat\n" in printed
    assert "4 * HEARTBEAT_INTERVAL_SEC <= CLAIM_TTL_SEC\n    4 * 5 <= 44\n" in printed
    assert max(map(len, printed.splitlines())) <= 80
    for relation in RELATIONS:
        assert relation.reason in " ".join(printed.split())


def test_explain_can_be_read_by_a_program() -> None:
    told = {entry["name"]: entry for entry in json.loads(run("--explain", "-o", "json", SPAWNING_TIMEOUT_SEC="601"))}
    assert told["starting ends before booting does"]["status"] == "warning"
    assert told["starting ends before booting does"]["numbers"] == "601 <= 600"
    assert sum(entry["status"] == "ok" for entry in told.values()) == len(RELATIONS) - 1


def test_wrong_settings_are_left_to_the_program_to_report() -> None:
    with pytest.raises(InvalidSettings, match=r"^MIN_ACTIVE_GPUS \(11, environment\) must be <= MAX_ACTIVE_GPUS"):
        run(MIN_ACTIVE_GPUS="11")
