"""Secrets: where they may be kept, and that nothing ever shows one."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herdsman.errors import InvalidSettings
from herdsman.settings import load_settings, rows
from herdsman.settings.kinds import database_url, hide_password
from herdsman.settings.model import CATALOGUE

NOWHERE = Path("/nonexistent")
CANARY = "canary-7f3a"
SECRETS = {
    "RUNPOD_API_KEY": CANARY,
    "RUNPOD_ENV_VARS": json.dumps({"HF_TOKEN": CANARY}),
    "ADMIN_API_KEY": CANARY,
    "API_TOKEN": CANARY,
    "BOOTSTRAP_TOKEN": CANARY,
    "TOKEN_PEPPER": CANARY,
    "RESULT_S3_SECRET": CANARY,
    "RESULT_S3_ENDPOINT": f"https://someone:{CANARY}@s3.example",
    "DATABASE_URL": f"postgres://herdsman:{CANARY}@db.example/jobs?sslpassword={CANARY}",
    "REDIS_URL": f"redis://:{CANARY}@cache.example/0",
    "METRICS_PUSHGATEWAY_URL": f"https://someone:{CANARY}@push.example/?token={CANARY}",
}


def refusal(env: dict[str, str], cwd: Path = NOWHERE) -> str:
    with pytest.raises(InvalidSettings) as refused:
        load_settings(env, cwd)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    return str(refused.value)


def test_the_canary_is_in_every_secret() -> None:
    assert {each.name for each in CATALOGUE.values() if each.kind.secret} <= set(SECRETS)


def test_no_secret_is_shown_by_settings() -> None:
    settings = load_settings(SECRETS, NOWHERE)
    values = {row.name: row.value for row in rows(settings)}
    assert CANARY not in repr(values)
    assert values["RUNPOD_API_KEY"] == "set (hidden)"
    assert values["DATABASE_URL"] == "postgresql+psycopg://herdsman:***@db.example/jobs?sslpassword=***"
    assert values["RESULT_S3_ENDPOINT"] == "https://someone:***@s3.example"
    assert CANARY not in f"{settings} {settings!r}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"DATABASE_URL": f"oracle://me:{CANARY}@db/x"},
        {"DATABASE_URL": f"host=db password={CANARY}"},
        {"REDIS_URL": f"http://:{CANARY}@cache"},
        {"RUNPOD_ENV_VARS": f"HF_TOKEN={CANARY}"},
        {"RUNPOD_ENV_VARS": json.dumps({"HF_TOKEN": [CANARY]})},
        {"METRICS_PUSHGATEWAY_URL": CANARY},
        {"HERDSMAN_RUNPOD_API_KY": CANARY},
        {"MIN_ACTIVE_GPUS": "99"},
    ],
)
def test_no_secret_is_in_a_refusal(wrong: dict[str, str]) -> None:
    assert CANARY not in refusal({**SECRETS, **wrong})


def test_a_database_we_cannot_run_on_is_refused_in_one_sentence() -> None:
    assert refusal({"DATABASE_URL": f"oracle://me:{CANARY}@db/x"}) == (
        "DATABASE_URL must be sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME,"
        " mysql://USER:PASSWORD@HOST/NAME or mariadb://USER:PASSWORD@HOST/NAME,"
        " but is oracle://me:***@db/x in the environment."
    )


@pytest.mark.parametrize(
    ("typed", "used"),
    [
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg://u@h/d"),
        ("mysql://u@h/d", "mysql+pymysql://u@h/d"),
        ("mysql+pymysql://u@h/d", "mysql+pymysql://u@h/d"),
        ("mariadb://u@h/d", "mysql+pymysql://u@h/d"),
        ("POSTGRES://u@h/d", "postgresql+psycopg://u@h/d"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////var/jobs.db", "sqlite:////var/jobs.db"),
    ],
)
def test_the_usual_spellings_of_a_database_are_understood(typed: str, used: str) -> None:
    assert load_settings({"DATABASE_URL": typed}, NOWHERE).database.database_url.get_secret_value() == used


@pytest.mark.parametrize("typed", ["jobs.db", "sqlite://", "sqlite:///", "postgresql+asyncpg://h/d", "postgres//h/d"])
def test_other_spellings_are_refused(typed: str) -> None:
    assert refusal({"DATABASE_URL": typed}).startswith("DATABASE_URL must be sqlite:///FILE, ")


def test_the_default_database_is_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    url = load_settings({}, NOWHERE).database.database_url.get_secret_value()
    assert url == f"sqlite:///{tmp_path}/herdsman/herdsman.db"


SCHEMES = st.sampled_from(["postgres", "mysql", "sqlite", "redis", "https", "oracle", "a+b"])


@given(SCHEMES, st.text(), st.text())
@example("postgres", "a/b?c@", ":#&")
@example("postgres", "a://", "?password=")
def test_a_password_in_a_url_is_never_shown(scheme: str, before: str, after: str) -> None:
    url = f"{scheme}://user:{before}{CANARY}{after}@host/name"
    assert CANARY not in hide_password(url)
    assert hide_password(url) == f"{scheme}://user:***@host/name"


@given(
    SCHEMES,
    st.sampled_from(["password", "PASSWD", "sslpassword", "p%61ssword", "auth_token", "pwd"]),
    st.text(),
)
def test_a_password_among_the_parameters_is_never_shown(scheme: str, name: str, after: str) -> None:
    url = f"{scheme}://host/name?sslmode=require&{name}={CANARY}{quote(after, safe='')}&timeout=5"
    assert hide_password(url) == f"{scheme}://host/name?sslmode=require&{name}=***&timeout=5"


@given(st.text(), st.text())
def test_a_text_that_is_no_url_is_hidden_as_a_whole(before: str, after: str) -> None:
    assert CANARY not in hide_password(f":{before}{CANARY}{after}")


@given(
    st.sampled_from(["postgres", "mariadb", "sqlite"]),
    st.text(st.characters(exclude_characters="/"), min_size=1),
)
def test_a_spelling_that_was_understood_is_understood_again(scheme: str, rest: str) -> None:
    once = database_url(f"{scheme}:///{rest}x")
    assert database_url(once) == once


class TestSecretFiles:
    @pytest.fixture
    def key(self, tmp_path: Path) -> Path:
        path = tmp_path / "key"
        path.write_text(f"{CANARY}\n")
        return path

    @pytest.mark.parametrize("spelled", ["RUNPOD_API_KEY_FILE", "HERDSMAN_RUNPOD_API_KEY_FILE"])
    def test_a_secret_may_lie_in_a_file(self, spelled: str, key: Path) -> None:
        """As container platforms hand secrets over."""
        secret = load_settings({spelled: str(key)}, NOWHERE).runpod.runpod_api_key
        assert secret is not None
        assert secret.get_secret_value() == CANARY

    def test_the_path_may_stand_in_the_configuration_file(self, key: Path) -> None:
        (key.parent / "herdsman.toml").write_text('[runpod]\nrunpod_api_key_file = "key"')
        settings = load_settings({}, key.parent)
        assert settings.runpod.runpod_api_key is not None
        assert settings.origin("RUNPOD_API_KEY") == "herdsman.toml"

    def test_a_file_that_nobody_needs_is_not_opened(self, tmp_path: Path) -> None:
        (tmp_path / "herdsman.toml").write_text('runpod_api_key_file = "missing"')
        load_settings({"RUNPOD_API_KEY": CANARY}, tmp_path)

    def test_the_value_and_a_file_at_once_is_refused(self, key: Path) -> None:
        both = {"RUNPOD_API_KEY": "x", "RUNPOD_API_KEY_FILE": str(key)}
        assert (
            refusal(both) == "RUNPOD_API_KEY and RUNPOD_API_KEY_FILE are both set in the environment; set one of them."
        )

    @pytest.mark.parametrize(
        ("env", "expected"),
        [
            ({"HERDSMAN_RUNPOD_API_KEY_FILE": "key", "RUNPOD_API_KEY": "bare"}, CANARY),
            ({"HERDSMAN_RUNPOD_API_KEY": "own", "RUNPOD_API_KEY_FILE": "key"}, "own"),
        ],
    )
    def test_the_prefixed_spelling_wins_here_too(self, env: dict[str, str], expected: str, key: Path) -> None:
        secret = load_settings(env, key.parent).runpod.runpod_api_key
        assert secret is not None
        assert secret.get_secret_value() == expected

    def test_a_file_that_is_missing_or_empty_is_named(self, tmp_path: Path) -> None:
        named = f"{tmp_path}/key, the file that ADMIN_API_KEY_FILE in the environment names,"
        env = {"ADMIN_API_KEY_FILE": "key"}
        assert refusal(env, tmp_path) == f"{named} cannot be read: No such file or directory."
        (tmp_path / "key").write_text("\n")
        assert refusal(env, tmp_path) == f"{named} must hold from 1 to 65536 characters."

    def test_a_wrong_value_in_a_file_is_reported_with_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "url").write_text(f"oracle://me:{CANARY}@db/x")
        problem = refusal({"DATABASE_URL_FILE": "url"}, tmp_path)
        assert problem.startswith("DATABASE_URL must be ")
        assert problem.endswith(f"but is oracle://me:***@db/x in {tmp_path}/url.")
