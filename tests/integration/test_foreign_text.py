"""What jobs, workers and services write is shown by each command, on a terminal, and never obeyed by it."""

import json
import os
import re
import sys
from collections.abc import Iterator

import pytest
import structlog

from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.actions import ActionReason, Code
from herdsman.ids import JobId
from herdsman.jobs.assign import claim_for
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import ClaimRequest, LogLines, Progress, WorkerHeartbeat
from herdsman.jobs.worker_commands import complete_job, fail_job, record_heartbeat
from herdsman.telemetry.logs import configure_logs
from tests.docs.terminal import Terminal
from tests.support.api_server import serving, settings_of
from tests.support.builders import a_job, a_worker
from tests.support.shell import Shell

HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x9b2J\u202eevil\rback"
OBEYED = re.compile("\x1b\\]|\x07|\x1b\\[2J|\x9b|\u202e|evil\r")
SHOWN = "\\u001b]0;PWNED\\u0007"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A database in which everything that may be foreign is hostile."""
    shell = Shell(tmp_path_factory.mktemp("foreign"))
    with serving(settings_of(shell)) as services:
        shell.said("submit", "demo", "--job-id", "ended")
        one, two, three = (a_worker(services, name) for name in ("w1", "w2", "w3"))
        for worker in (one, two, three):
            if worker is not one:
                a_job(services, job_id=JobId(f"of-{worker}"), payload={"prompt": HOSTILE})
            (claim,) = claim_for(services, {worker: ClaimRequest(begin=True)})
            said = LogLines(first=0, lines=(HOSTILE, "the second line"))
            heartbeat = WorkerHeartbeat(
                keys=(claim.key,),
                logs={claim.key: said},
                progress={claim.key: Progress(done=0.5, note=HOSTILE)},
                trouble=HOSTILE,
            )
            record_heartbeat(services, worker, heartbeat)
            if worker == one:
                complete_job(services, claim.key, {"made": HOSTILE})
            elif worker == two:
                fail_job(services, claim.key, Failure(kind=FailureClass.USER_ERROR, error=f"{HOSTILE}\nline 2"))
        broken = a_worker(services, "w4")
        why = ActionReason(Code.GPU_BROKEN, HOSTILE)
        services.database.transact(lambda tx: fleet_sql.fail(tx, broken, why))
        yield shell


COMMANDS = (
    ("jobs", "-o", "wide"),
    ("job", "of-w2"),
    ("logs", "of-w2"),
    ("why", "of-w2"),
    ("run", "demo", "--job-id", "ended"),
    ("workers", "-o", "wide"),
    ("why", "worker", "w4"),
    ("job", "of-w2", "-o", "json"),
    ("logs", "of-w2", "-o", "json"),
    ("workers", "-o", "json"),
)
QUIET = (
    ("events", "--since", "0", "-n", "9"),
    ("events", "--since", "0", "-n", "9", "-o", "json"),
    ("top", "--once"),
)
"""Nothing of it is shown there today; none of it may ever be obeyed."""


@pytest.mark.parametrize("words", [*COMMANDS, *QUIET], ids=" ".join)
def test_a_command_shows_foreign_text_and_does_not_obey_it(shell: Shell, words: tuple[str, ...]) -> None:
    shown = shell.on_terminal(*words)
    assert OBEYED.search(shown) is None, repr(shown)
    assert (SHOWN in shown) == (words in COMMANDS), shown


def test_lines_stay_lines_and_those_of_others_are_further_in(shell: Shell) -> None:
    assert shell.said("logs", "of-w2").splitlines()[1] == "the second line"
    for words in (("why", "of-w2"), ("job", "of-w2")):
        mine = [line for line in shell.said(*words).splitlines() if line.endswith("line 2")]
        assert mine
        assert all(line.startswith("    ") for line in mine)


def test_json_keeps_what_was_written(shell: Shell) -> None:
    (piece,) = (json.loads(line) for line in shell.said("logs", "of-w2", "-o", "json").splitlines())
    assert piece["lines"] == [HOSTILE, "the second line"]
    assert json.loads(shell("run", "demo", "--job-id", "ended").stdout) == {"made": HOSTILE}


def test_the_refusal_of_a_server_is_foreign_too(shell: Shell) -> None:
    shown = shell.on_terminal("job", "no\x1b]0;PWNED\x07such")
    assert OBEYED.search(shown) is None, repr(shown)


def test_the_console_of_a_worker_obeys_no_handler(shell: Shell) -> None:
    (shell.directory / "loud.py").write_text(f"print({HOSTILE.partition(chr(13))[0]!r})\ndef shout(job): ...\n")
    environment = {**shell.environment, "PATH": os.environ["PATH"]}
    command = f"{sys.executable} -m herdsman worker --id loud --handler loud:shout"
    terminal = Terminal(command, shell.directory, environment)
    try:
        assert terminal.wait_for("handlers are loaded", 60), terminal.drawn
        assert terminal.wait_for("PWNED", 60), terminal.drawn
        assert OBEYED.search(terminal.raw.replace("\r\n", "\n")) is None, repr(terminal.raw)
    finally:
        terminal.close()


def test_a_line_of_the_log_is_one_line_and_obeys_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        for form in ("text", "json"):
            configure_logs("info", form)
            structlog.get_logger().info("worker.ended", why=HOSTILE, lines="one\ntwo")
    finally:
        structlog.configure(**before)  # what it writes to ends with this test
    shown = capsys.readouterr().err
    assert OBEYED.search(shown) is None, repr(shown)
    assert shown.count("PWNED") == len(shown.splitlines()) == 2
