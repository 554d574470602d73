"""The command as a person types it, in a directory and an environment of its own."""

import atexit
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import tempfile
import tty
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.support.preloaded_commands import LONGEST

_PATIENCE_S = 60
CANARY = "correct-horse-battery"
"""A secret that no command may ever print."""


class Shell:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = directory / "herdsman.db"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "DATABASE_URL": f"sqlite:///{self.database}",
        }

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return _typed(words, self.directory, {**self.environment, **environment})

    def said(self, *words: str) -> str:
        run = self(*words)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def json(self, *words: str) -> dict[str, object]:
        return json.loads(self(*words, "-o", "json").stdout)

    def on_terminal(self, *words: str) -> str:
        """What reaches the terminal of whoever types this, byte for byte."""
        return _shown(words, self.directory, {**self.environment, "TERM": "xterm-256color", "COLUMNS": "300"})

    def refused(self, *words: str, **environment: str) -> str:
        """The one sentence with which the command gives up."""
        run = self(*words, **environment)
        assert run.returncode != 0, run.stdout
        assert "Traceback" not in run.stderr
        assert CANARY not in run.stdout + run.stderr
        (sentence,) = run.stderr.strip().splitlines()
        return sentence


def _typed(words: Sequence[str], directory: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    asked = json.dumps([list(words), str(directory), dict(environment)]).encode()
    assert len(asked) <= LONGEST, f"a command of {len(asked)} bytes is too long for them"
    told, tell = os.pipe()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        os.fdopen(told, "rb", buffering=0) as answers,
    ):
        _ask(asked, out.fileno(), err.fileno(), tell)
        code = _ended(answers, int(answers.readline()))
        return subprocess.CompletedProcess(["herdsman", *words], code, _text(out), _text(err))


def _shown(words: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    asked = json.dumps([list(words), str(directory), dict(environment)]).encode()
    told, tell = os.pipe()
    screen, inside = pty.openpty()
    tty.setraw(inside)
    with os.fdopen(told, "rb", buffering=0) as answers:
        _ask(asked, inside, inside, tell)
        os.close(inside)
        answers.readline()
        drawn = bytearray()
        while select.select([screen], [], [], _PATIENCE_S)[0]:
            try:
                drawn += os.read(screen, 1 << 16)
            except OSError:  # nobody is left who could write
                break
        os.close(screen)
        return drawn.decode(errors="surrogateescape")


def _ended(answers: IO[bytes], pid: int) -> int:
    if not select.select([answers], [], [], _PATIENCE_S)[0]:
        os.kill(pid, signal.SIGKILL)
        raise TimeoutError(f"the command did not end within {_PATIENCE_S} s")
    return int(answers.readline())


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _ask(asked: bytes, out: int, err: int, tell: int) -> None:
    with (
        Path(os.devnull).open("rb") as nothing,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line,
    ):
        line.connect(str(_preloaded_commands()))
        socket.send_fds(line, [asked], [nothing.fileno(), out, err, tell])
    os.close(tell)


def preloaded(*words: str) -> list[str]:
    """The command line of a `herdsman` that needs not be loaded."""
    client = Path(__file__).with_name("preloaded_client.py")
    return [sys.executable, "-IS", str(client), str(_preloaded_commands()), *words]


@cache
def _preloaded_commands() -> Path:
    """The socket of the process that has loaded them: one for each process with tests; it ends when that does."""
    directory = tempfile.TemporaryDirectory(prefix="herdsman-")
    place = Path(directory.name) / "commands"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place))
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.preloaded_commands", str(listener.fileno())],
            stdin=theirs.fileno(),
            pass_fds=[listener.fileno()],
            cwd=Path(__file__).parents[2],
        )
    atexit.register(directory.cleanup)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return place
