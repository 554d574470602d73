"""A terminal for commands that fill one: it reads what they draw and types the keys that its user would."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

LINES, COLUMNS = 24, 80
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


class Terminal:
    """As large as a terminal was in the beginning. What is drawn is kept, in the order of drawing."""

    def __init__(self, command: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._screen, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=directory,
            env={**environment, "TERM": "xterm-256color"},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self.raw = ""

    @property
    def drawn(self) -> str:
        return _ESCAPES.sub("", self.raw)

    def wait_for(self, words: str, patience_s: float) -> bool:
        """Whether it draws them in time."""
        deadline = time.monotonic() + patience_s
        while words not in self.drawn:
            if self._process.poll() is not None or time.monotonic() > deadline:
                return False
            self._read()
        return True

    def press(self, key: str) -> None:
        os.write(self._screen, key.encode())

    def ended(self, patience_s: float) -> int | None:
        """Its status; None while it goes on."""
        deadline = time.monotonic() + patience_s
        while self._process.poll() is None and time.monotonic() < deadline:
            self._read()
        return self._process.poll()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._screen)

    def _read(self) -> None:
        if select.select([self._screen], [], [], 0.1)[0]:
            with suppress(OSError):  # it has ended
                self.raw += os.read(self._screen, 1 << 16).decode(errors="replace")
