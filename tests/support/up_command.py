"""`herdsman up` as a person runs it, from its greeting to Ctrl-C."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO

from tests.support.shell import Shell, preloaded

PATIENCE_S = 90


class Said(list[str]):
    """What it has printed so far, line by line."""

    def __init__(self, printed: IO[str]) -> None:
        super().__init__()
        self._printed = printed

    def read_line(self) -> str:
        """The next one, when it comes."""
        self.append(self._printed.readline())
        return self[-1]


@contextmanager
def up(shell: Shell, *words: str, load: bool = False) -> Generator[Said]:
    """Its greeting; one that somebody else has ended is not missed. Unless `load`, it is a fork of a loaded one."""
    typed = ["up", "--port", "0", *words]
    with subprocess.Popen(
        [sys.executable, "-m", "herdsman", *typed] if load else preloaded(*typed),
        cwd=shell.directory,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        greeting = Said(process.stdout)
        try:
            while "Ctrl-C" not in greeting.read_line():
                assert greeting[-1], f"it ended with {process.wait(30)} after {greeting}"
            yield greeting
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            greeting.append(process.stdout.read())
        assert process.wait(PATIENCE_S) == 0


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.2)
