"""The policy over HTTP, and from the command line."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.limits.commands import PolicyBook
from herdsman.ports import SystemClock
from herdsman.server.state import ServerState
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.support.api_server import served
from tests.support.shell import Shell

PLACE = "/control/policy"


@pytest.fixture
def services(services: Services) -> Services:
    """As the server has them: what is set holds at once."""
    return replace(services, rules=PolicyBook(services.database, SystemClock()))


@pytest.fixture
def operator(tokens: Tokens) -> dict[str, str]:
    return tokens.header(Role.OPERATOR, "olga")


def put(client: Client, who: dict[str, str], policy: object, **more: Any) -> httpx.Response:
    return client.put(PLACE, json={"policy": policy, **more}, headers=who)


def test_what_is_set_is_shown_with_its_version_and_its_author(
    client: Client, operator: dict[str, str], tokens: Tokens, state: ServerState
) -> None:
    viewer = tokens.header(Role.VIEWER)
    before = client.get(PLACE, headers=viewer).json()
    assert (before["version"], before["by"], before["created_at"]) == (0, None, None)
    done = put(client, operator, {"agents": {"ann": {"rate_per_second": 5}}}, note="a flood")
    assert done.status_code == 200
    assert done.json()["changes"] == [{"path": "agents.ann.rate_per_second", "old": None, "new": 5.0}]
    now = client.get(PLACE, headers=viewer).json()
    assert (now["version"], now["note"]) == (1, "a flood")
    assert now["policy"]["agents"]["ann"]["rate_per_second"] == 5
    assert now["policy"]["default"]["rate_per_second"] is None
    assert "token" in now["by"] or "olga" in now["by"]
    assert state.services.rules().version == 1, "it holds here at once"


def test_the_same_again_is_the_same_version(client: Client, operator: dict[str, str]) -> None:
    put(client, operator, {"fair": False})
    again = put(client, operator, {"fair": False})
    assert (again.status_code, again.json()["version"]) == (200, 1)


def test_a_change_of_what_is_no_longer_current_is_refused(client: Client, operator: dict[str, str]) -> None:
    put(client, operator, {"fair": False}, base_version=0)
    late = put(client, operator, {"cpu_pool": "cpu"}, base_version=0)
    assert late.status_code == 409
    assert "at version 1 by now" in late.json()["detail"]


def test_versions_can_be_looked_at_and_the_history_tells_what_changed(client: Client, operator: dict[str, str]) -> None:
    for high in (10, 20, 30):
        put(client, operator, {"gates": {"queue_high": high}})
    assert client.get(f"{PLACE}/2", headers=operator).json()["policy"]["gates"]["queue_high"] == 20
    page = client.get(f"{PLACE}/history", params={"limit": 2}, headers=operator).json()
    assert [each["changes"] for each in page["versions"]] == [
        [{"path": "gates.queue_high", "old": 20, "new": 30}],
        [{"path": "gates.queue_high", "old": 10, "new": 20}],
    ]
    rest = client.get(f"{PLACE}/history", params={"after": page["next"]}, headers=operator).json()
    assert ([each["version"] for each in rest["versions"]], rest["next"]) == ([1], None)
    assert client.get(f"{PLACE}/9", headers=operator).status_code == 404


HUGE = 10**400
BAD: dict[str, Any] = {
    "nothing": None,
    "text": "fast",
    "list": [],
    "unknown word": {"agnets": {}},
    "unknown word inside": {"agents": {"ann": {"rate": 1}}},
    "negative": {"default": {"rate_per_second": -1}},
    "zero": {"default": {"rate_per_second": 0}},
    "huge": {"default": {"burst": HUGE, "rate_per_second": 1}},
    "huge fraction": {"default": {"rate_per_second": 1e308}},
    "text for a number": {"default": {"max_queued": "5"}},
    "burst alone": {"default": {"burst": 1}},
    "marks": {"gates": {"queue_low": 5, "queue_high": 4}},
    "bad name": {"agents": {"a b": {}}},
    "long name": {"agents": {"a" * 256: {}}},
    "too many": {"agents": {f"a{number}": {} for number in range(1001)}},
    "fair": {"fair": "yes"},
    "deep": {"default": {"max_queued": {"a": {"b": 1}}}},
}


@pytest.mark.parametrize("case", BAD)
def test_a3_a_bad_policy_is_a_422_that_says_where(client: Client, operator: dict[str, str], case: str) -> None:
    answer = put(client, operator, BAD[case])
    assert answer.status_code == 422
    assert client.get(PLACE, headers=operator).json()["version"] == 0


def test_a_misspelt_word_is_answered_with_the_one_that_was_meant(client: Client, operator: dict[str, str]) -> None:
    answer = put(client, operator, {"agnets": {}})
    assert "did you mean 'agents'" in answer.json()["detail"]


def test_nan_is_no_number(client: Client, operator: dict[str, str]) -> None:
    body = b'{"policy": {"default": {"rate_per_second": NaN}}}'
    headers = {**operator, "content-type": "application/json"}
    assert client.put(PLACE, content=body, headers=headers).status_code in (400, 422)


def test_those_who_only_look_or_submit_change_nothing(client: Client, tokens: Tokens) -> None:
    for role in (Role.VIEWER, Role.SUBMITTER, Role.METRICS):
        header = tokens.header(role, f"n-{role}")
        assert put(client, header, {"fair": False}).status_code == 403
    assert client.get(PLACE, headers=tokens.header(Role.SUBMITTER, "x")).status_code == 403


@pytest.fixture
def herdsman(url: str, tmp_path: Path) -> Iterator[Any]:
    """The command line beside a server of this database; a refusal is raised here."""
    shell = Shell(tmp_path)
    shell.environment["DATABASE_URL"] = url

    def run(*words: str) -> str:
        done = shell(*words)
        if done.returncode == 2:
            raise InvalidRequest(done.stderr)
        assert done.returncode == 0, done.stderr
        return done.stdout

    with served(shell):
        yield run


def test_the_command_line_shows_sets_and_tells_what_changed(herdsman: Any) -> None:
    assert "no policy has been set yet" in herdsman("policy", "show")
    said = herdsman("policy", "set", "agents.ann.rate_per_second=5", "default.max_queued=10", "--note", "n")
    assert "agents.ann.rate_per_second: none -> 5.0" in said
    assert "version 1" in said
    assert "version 1: nothing to change" in herdsman("policy", "set", "default.max_queued=10")
    assert "stays" in herdsman("policy", "set", "agents.ann=none", "--dry-run")
    assert "agents.ann.rate_per_second: 5.0 -> none" in herdsman("policy", "set", "agents.ann=none")
    shown = json.loads(herdsman("policy", "show", "-o", "json"))
    assert (shown["version"], shown["policy"]["agents"]) == (2, {})
    assert json.loads(herdsman("policy", "show", "--version", "1", "-o", "json"))["note"] == "n"
    assert herdsman("policy", "history").splitlines()[1].startswith("2 ")
    assert "more" in herdsman("policy", "history", "-n", "1")


def test_a_file_that_was_shown_can_be_set_again(herdsman: Any, tmp_path: Path) -> None:
    herdsman("policy", "set", "cheaper_pools.big=small", "cpu_pool=cpu", "fair=false")
    kept = tmp_path / "policy.json"
    kept.write_text(herdsman("policy", "show", "-o", "json"))
    herdsman("policy", "set", "cpu_pool=none")
    assert 'cpu_pool: none -> "cpu"' in herdsman("policy", "set", "--file", str(kept))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to set"),
        (["default.burst"], "is not PATH=VALUE"),
        (["default.brust=5"], "did you mean 'burst'"),
        (["default.burst=5"], "there is no rate_per_second"),
        (["--file", "nowhere.json"], "cannot be read"),
        (["default.rate_per_second=NaN"], "finite"),
    ],
)
def test_what_cannot_be_set_is_said_before_anything_is_sent(herdsman: Any, words: list[str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        herdsman("policy", "set", *words)
    assert "no policy has been set" in herdsman("policy", "show")
