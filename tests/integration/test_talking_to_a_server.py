"""Wrong token, expired token, no server, another version: which of them it is, and what to do."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from herdsman import __version__
from tests.support.shell import Shell
from tests.support.up_command import up


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.environment |= {"FAKE_GPUS": "1", "MIN_ACTIVE_GPUS": "0"}
    return shell


def test_each_trouble_with_a_server_has_its_own_sentence_and_status(shell: Shell) -> None:
    with up(shell) as greeting:
        url = next(line.split()[1] for line in greeting if line.startswith("api "))
        good = shell.said("token", "create", "eye").strip()
        brief = shell.said("token", "create", "fly", "--days", str(timedelta(seconds=1) / timedelta(days=1)))
        assert shell("jobs", API_URL=url, API_TOKEN=good).returncode == 0
        wrong = shell("jobs", API_URL=url, API_TOKEN=f"{good[:-1]}{'0' if good[-1] != '0' else '1'}")
        while (late := shell("jobs", API_URL=url, API_TOKEN=brief.strip())).returncode == 0:
            pass
        none = shell("jobs", API_URL=url, LOCAL_STATE_DIR=str(shell.directory / "nothing"))
    away = shell("jobs", API_URL=url, API_TOKEN=good)
    assert [run.returncode for run in (wrong, late, none, away)] == [8, 8, 8, 5]
    assert "the token is not known, or was revoked: check it for a slip" in wrong.stderr
    assert "the token has expired at 20" in late.stderr
    assert "it came from API_TOKEN" in late.stderr
    assert "requires a token and none was sent: set API_TOKEN" in none.stderr
    assert "got no answer" in away.stderr
    assert "start it with herdsman up, or set API_URL" in away.stderr
    assert all(good[-20:] not in run.stderr for run in (wrong, late, none, away))


@contextmanager
def a_server(version: str, answer: Callable[[str], tuple[int, object]]) -> Generator[str]:
    """Something that says it is Herdsman of this version."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            said = json.dumps(body).encode()
            self.send_response(status)
            kind = "application/json" if status == 200 else "application/problem+json"
            for name, value in (
                ("content-type", kind),
                ("herdsman-version", version),
                ("content-length", len(said)),
            ):
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002  (the library's word)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def no_such_path(_: str) -> tuple[int, object]:
    said = "there is nothing at this path"
    return 404, {"type": "urn:herdsman:not-found", "title": "not found", "status": 404, "detail": said}


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.0.3", f"the server is older than this command: it runs Herdsman 0.0.3, this is {__version__}"),
        ("99.1.0", f"the server is newer than this command: it runs Herdsman 99.1.0, this is {__version__}"),
    ],
)
def test_a_server_of_another_version_is_named_with_what_to_upgrade(shell: Shell, version: str, said: str) -> None:
    with a_server(version, no_such_path) as url:
        run = shell("eta", "0" * 32, API_URL=url, API_TOKEN="hm_x")
    assert run.returncode == 9
    assert f"herdsman: {said}; upgrade " in run.stderr


def test_what_works_in_spite_of_another_version_works_with_a_warning(shell: Shell) -> None:
    with a_server("99.1.0", lambda _: (200, {"jobs": [], "next": None})) as url:
        run = shell("jobs", API_URL=url, API_TOKEN="hm_x")
    assert (run.returncode, run.stdout) == (0, "no jobs; submit one with: herdsman submit demo\n")
    assert run.stderr.startswith("warning: the server is newer than this command")


def test_of_the_same_release_nothing_is_said(shell: Shell) -> None:
    with a_server(__version__, lambda _: (200, {"jobs": [], "next": None})) as url:
        assert shell("jobs", API_URL=url, API_TOKEN="hm_x").stderr == ""


def test_lists_and_short_ids_and_events_are_the_same_over_http(shell: Shell) -> None:
    with up(shell):
        job = shell.said("submit", "image", "--count", "2").split()[0]
        assert shell.json("job", job[-9:])["job_id"] == job
        assert shell.said("workers").startswith(("WORKER ", "no workers;"))
        assert shell.said("pools").splitlines()[1].startswith("default ")
        assert shell.said("events", "--since", "0", "-n", "1", "--kind", "job").split()[3] == job
        assert len(shell.said("events", "--job", job).splitlines()) == 1, "in a pipe it ends"
        assert shell.said("cancel", "--type", "image", "-y").endswith("2 of 2 jobs changed by cancel\n")
