"""What a person is told when the server is away, does not know them, or is of another version."""

import pytest

from herdsman import __version__
from herdsman.cli.errors import Server, VersionMismatch, difference, exit_code, explain
from herdsman.errors import Forbidden, HerdsmanError, InvalidRequest, NotFound, Unauthenticated, Unreachable
from herdsman.text import VERSION, misfit

URL = "http://herd:8765"


def a_server(version: str | None = __version__, token_from: str | None = "API_TOKEN") -> Server:
    return Server(URL, token_from=token_from, version=version)


@pytest.mark.parametrize(
    ("server", "here", "said"),
    [
        ("0.1.0", "0.1.7", None),
        ("0.2.0.dev1", "0.2.3", None),
        ("nonsense", "0.2.3", None),
        ("0.9.9", "0.10.0", "older than this command: it runs Herdsman 0.9.9, this is 0.10.0; upgrade the"),
        ("1.0.0", "0.10.0", "newer than this command: it runs Herdsman 1.0.0, this is 0.10.0; upgrade this"),
    ],
)
def test_only_the_first_two_numbers_of_a_version_matter(server: str, here: str, said: str | None) -> None:
    found = difference(server, here)
    assert found is None if said is None else (found is not None and said in found)


def test_a_worker_says_when_its_server_is_of_another_release_and_again_when_that_changes() -> None:
    said: list[str] = []
    server = Server(URL, token_from=None, what="this worker", say=said.append)
    for version in ("99.0.0", "99.0.0", __version__, "98.1.0"):
        server.met(version)
    assert [line.partition(":")[0] for line in said] == ["warning", "warning"]
    assert "newer than this worker: it runs Herdsman 99.0.0" in said[0]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.1.9", None),
        (None, None),
        ("nonsense", None),
        ("0.1\x1b[2J", None),
        ("0.2.0", "it runs Herdsman 0.2.0, the server 0.1.0"),
        ("1.1.0", "it runs Herdsman 1.1.0, the server 0.1.0"),
    ],
)
def test_a_worker_of_another_release_is_told_apart(version: str | None, said: str | None) -> None:
    found = misfit({} if version is None else {VERSION: version}, "0.1.0")
    assert found is None if said is None else (found or "").startswith(said)


@pytest.mark.parametrize(
    "error",
    [
        NotFound("there is nothing at this path"),
        InvalidRequest("the request is not as it must be: body.new: Extra inputs are not permitted"),
        Unreachable("GET /x was answered with 200 and text/html"),
    ],
)
def test_what_may_come_from_another_version_is_put_down_to_it(error: HerdsmanError) -> None:
    told = explain(error, a_server("99.0.0"))
    assert isinstance(told, VersionMismatch)
    assert exit_code(told) == 9
    assert str(error) in str(told)
    assert explain(error, a_server()) is error


@pytest.mark.parametrize("error", [NotFound("there is no job 'x'"), Forbidden("a viewer may not")])
def test_what_has_nothing_to_do_with_versions_stays(error: HerdsmanError) -> None:
    assert explain(error, a_server("99.0.0")) is error


def test_a_token_that_is_refused_is_named_by_its_place_and_never_shown() -> None:
    told = explain(Unauthenticated("the token is not known"), a_server(token_from="/home/ann/admin-token"))
    assert exit_code(told) == 8
    assert str(told).endswith("it came from /home/ann/admin-token")


def test_no_token_at_all_is_said_in_other_words() -> None:
    told = explain(Unauthenticated("no token came"), a_server(token_from=None))
    assert "none was sent: set API_TOKEN" in str(told)


def test_a_server_that_never_answered_may_have_to_be_started() -> None:
    told = explain(Unreachable("GET x got no answer"), a_server(version=None))
    assert exit_code(told) == 5
    assert "start it with herdsman up, or set API_URL" in str(told)


def test_a_difference_is_worth_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    server = a_server(version=None)
    server.met("99.0.0")
    server.met("99.0.0")
    assert capsys.readouterr().err.count("warning: the server is newer") == 1
    a_server(version=None).met(__version__)
    assert capsys.readouterr().err == ""
