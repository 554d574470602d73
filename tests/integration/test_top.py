"""`herdsman top` at a real server, in a real terminal of 80 by 24."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.api_server import served
from tests.support.shell import Shell

# Every step starts programs, each of which may take seconds on a machine that has much to do.
pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 60
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|38|48)[;m]")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


class Terminal:
    """A terminal with `herdsman top` in it. What it drew is kept, in the order in which it was drawn."""

    def __init__(self, shell: Shell, **environment: str) -> None:
        self._screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "herdsman", "top"],
            cwd=shell.directory,
            env={**shell.environment, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self.drawn = ""

    def until(self, words: str) -> None:
        """Waits until it draws them, from here on."""
        begin, deadline = len(self.drawn), time.monotonic() + PATIENCE_S
        while words not in ESCAPES.sub("", self.drawn[begin:]):
            assert time.monotonic() < deadline, f"{words!r} is not in\n{ESCAPES.sub('', self.drawn[begin:])}"
            self._read()

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def ended(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self._read()
        return self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._screen)

    def _read(self) -> None:
        if select.select([self._screen], [], [], 0.1)[0]:
            with suppress(OSError):  # it has ended
                self.drawn += os.read(self._screen, 1 << 16).decode(errors="replace")


@contextmanager
def a_terminal(shell: Shell, **environment: str) -> Generator[Terminal]:
    terminal = Terminal(shell, **environment)
    try:
        yield terminal
    finally:
        terminal.close()


@contextmanager
def a_server(shell: Shell) -> Generator[subprocess.Popen[str]]:
    """With two pretended GPUs, until it is stopped or the test has ended."""
    log = shell.directory / "up.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "herdsman", "up", "--port", "0", "--fake-gpus", "2"],
            cwd=shell.directory,
            env=shell.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "Ctrl-C" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield process
    finally:
        stop(process, shell)


def stop(process: subprocess.Popen[str], shell: Shell) -> None:
    """As Ctrl-C does: its workers leave before it, so that none stays behind."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        assert process.wait(PATIENCE_S) == 0
    except subprocess.TimeoutExpired as error:
        for log in (shell.directory / "up.log", *shell.directory.rglob("logs/*.log")):
            error.add_note(f"{log.name}:\n{log.read_text()}")
        raise


def test_one_frame_with_and_without_a_control_loop(shell: Shell) -> None:
    with served(shell):
        shell.said("submit", "sculpture", "--job-id", "one")
        assert "no leader" in shell.said("top", "--once")
    with a_server(shell):
        frame = wait_for_frame(shell, r"(?m)^gpu-\S+ +default +active .*/24G")
    assert "http://127.0.0.1:" in frame.splitlines()[0]
    assert re.search(r"leader \S+, \d+s$", frame.splitlines()[0])
    assert re.search(r"(?m)^sculpture +default +1 ", frame)
    assert re.search(r"(?m)^one +sculpture +pending ", frame)
    assert "worker" in frame.partition("DECISION")[2]


def test_a_job_is_looked_at_and_cancelled_and_a_server_that_ends_is_survived(shell: Shell) -> None:
    with a_server(shell) as server:
        shell.said("submit", "sculpture", "--job-id", "one")
        with a_terminal(shell) as terminal:
            terminal.until("sculpture")
            assert COLOURS.search(terminal.drawn)
            terminal.press("\t\t\r")
            terminal.until("STEPS")
            terminal.press("c")
            terminal.until("Cancel the job one?")
            terminal.press("y")
            terminal.until("one is cancelled")
            terminal.press("\x1b")
            terminal.until("DECISION")
            stop(server, shell)
            terminal.until("no answer for")
            terminal.press("q")
            assert terminal.ended() == 0
            assert "Traceback" not in terminal.drawn
    with served(shell):
        assert shell.json("job", "one")["status"] == "cancelled"


def test_without_colours_none_are_drawn_and_ctrl_c_leaves(shell: Shell) -> None:
    with served(shell), a_terminal(shell, NO_COLOR="1") as terminal:
        terminal.until("q quit")
        terminal.press("\x03")
        assert terminal.ended() == 0
        assert "QUEUE" in terminal.drawn
        assert not COLOURS.search(terminal.drawn)
        assert "Traceback" not in terminal.drawn


def wait_for_frame(shell: Shell, pattern: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        frame = shell.said("top", "--once")
        if re.search(pattern, frame):
            return frame
        assert time.monotonic() < deadline, frame
