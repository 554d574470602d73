"""Runs what a page tells its reader to type, in a directory and on a database of its own."""

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.docs.comparing import matches, same_ids
from tests.docs.pages import ROOT, Block, Page
from tests.docs.terminal import Terminal
from tests.support.shell import preloaded

RUN = ("bash", "python")
OUTPUT = "console"
# The longest that a page asks of its reader: until a job has been taken back from a worker that died.
PATIENCE_S = 90
# Where the pages say that the API is, and the file in which it says where it is.
USUAL_API = "http://127.0.0.1:8765"
ANNOUNCED = Path(".local/state/herdsman/api")
# How a program ends that was told to: by itself, or, as make does, by the signal it was sent.
ENDED_BY_US = (0, -signal.SIGINT, 128 + signal.SIGINT)


class Difference(AssertionError):
    """A page says something else than what happens."""


# What a preloaded process cannot be: one in the background, one that fills a terminal, one that spawns its like, one
# that looks which shell has started it.
ALWAYS_LOADED = "worker|top|sim|--install-completion"


class Reader:
    """Somebody who follows a page from its top to its end.

    Loading a command takes longer than most of them run. Unless `load`, those that a page types are forks of a process
    that has loaded all of them.
    """

    def __init__(self, directory: Path, *, load: bool = False) -> None:
        self._directory = directory / "checkout"
        self._programs = directory / "programs"
        self._load = load
        self._prepare()
        self._same: dict[str, str] = {}
        self._environment = {
            "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
        }

    def follow(self, page: Page) -> None:
        """Shell blocks in their order; then the Python blocks, which are one program."""
        blocks = list(page.blocks())
        with ExitStack() as running:
            for index, block in enumerate(blocks):
                if block.language == "bash" and block.left_out is None:
                    self._follow(block, _shown_after(blocks, index), page, running)
            self._run_program([block for block in blocks if block.language == "python"], page)

    def _follow(self, block: Block, shown: Block | None, page: Page, running: ExitStack) -> None:
        if block.fills_terminal is not None:
            self._look_at(block, *block.fills_terminal, page)
            return
        output = self._type(block, shown, page, running)
        if shown is not None:
            compare(shown, output, page)
            self._same |= same_ids(shown.text, output)

    def _prepare(self) -> None:
        """A checkout as `make` leaves it, except that nothing is set up again while the tests run."""
        installed = self._directory / ".venv" / "bin"
        installed.mkdir(parents=True)
        (installed / "activate").symlink_to(Path(sys.prefix) / "bin" / "activate")
        (self._directory / "Makefile").symlink_to(ROOT / "Makefile")
        loaded = f'exec "{sys.executable}" -m herdsman "$@"'
        if not self._load:
            loaded = f'case "$1" in {ALWAYS_LOADED}) {loaded} ;; *) exec {shlex.join(preloaded())} "$@" ;; esac'
        _write_program(installed / "herdsman", loaded)
        self._programs.mkdir()
        (self._programs / "herdsman").symlink_to(installed / "herdsman")
        _write_program(self._programs / "make", f'exec "{shutil.which("make")}" -o .venv/ready "$@"')

    def _type(self, block: Block, shown: Block | None, page: Page, running: ExitStack) -> str:
        if block.keeps_running:
            assert shown is not None, f"{page.name}:{block.line}: say in a {OUTPUT} block what it prints"
            return running.enter_context(self._started(block, shown, page))
        # After the last command there is one more: the shell stays its parent, as at a terminal.
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", f"{self._as_typed(block.text)}\ntrue"],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            raise Difference(f"{page.name}:{block.line} ended with {done.returncode}:\n{block.text}\n{done.stdout}")
        return done.stdout

    def _look_at(self, block: Block, words: str, key: str, page: Page) -> None:
        terminal = Terminal(self._as_typed(block.text), self._directory, self._environment)
        try:
            if not terminal.wait_for(words, PATIENCE_S):
                raise Difference(f"{page.name}:{block.line} never showed {words!r}:\n{terminal.drawn}")
            terminal.press(key)
            if (status := terminal.ended(PATIENCE_S)) != 0:
                raise Difference(f"{page.name}:{block.line}: {key!r} left it with {status}")
        finally:
            terminal.close()

    @contextmanager
    def _started(self, block: Block, shown: Block, page: Page) -> Generator[str]:
        """Runs until the end of the page, then gets the Ctrl-C that its reader would type."""
        printed = self._directory.parent / f"printed-{block.line}"
        with printed.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._as_typed(block.text)}"],
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield _wait_for(shown, printed, process)
        finally:
            # A terminal sends Ctrl-C to the whole group, so a program started by make gets it as well.
            status = _interrupt(process)
        if status not in ENDED_BY_US:
            raise Difference(f"{page.name}:{block.line} ended with {status}:\n{printed.read_text()}")

    def _run_program(self, blocks: list[Block], page: Page) -> None:
        program = as_program([block for block in blocks if block.left_out is None])
        if not program.strip():
            return
        file = self._directory / f"{page.path.stem}.py"
        file.write_text(self._as_typed(program))
        done = subprocess.run(
            [sys.executable, "-W", "error", file],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode != 0:
            raise Difference(f"{page.name}: the lines named here are those of the page\n{done.stderr}")

    def _as_typed(self, text: str) -> str:
        """With the address of this server and the ids of this screen, where the page has those of another."""
        announced = Path(self._environment["HOME"]) / ANNOUNCED
        if announced.exists():
            text = text.replace(USUAL_API, json.loads(announced.read_text())["url"])
        for told, here in self._same.items():
            text = text.replace(told, here)
        return text


def _interrupt(process: "subprocess.Popen[bytes]") -> int:
    """Ends the group that we started, and nothing else; by force if it will not listen."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _write_program(file: Path, command: str) -> None:
    file.write_text(f"#!/bin/sh\n{command}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def as_program(blocks: list[Block]) -> str:
    """The blocks as one program, each on the lines that it has in the page."""
    lines: list[str] = []
    for block in blocks:
        lines += [""] * (block.line - 1 - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def compare(shown: Block, printed: str, page: Page) -> None:
    if not matches(shown.text, printed):
        raise Difference(f"{page.name}:{shown.line} shows\n{shown.text}\nbut this was printed:\n{printed}")


def _shown_after(blocks: list[Block], index: int) -> Block | None:
    following = blocks[index + 1] if index + 1 < len(blocks) else None
    return following if following is not None and following.language == OUTPUT else None


def _wait_for(shown: Block, printed: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + PATIENCE_S
    while not matches(shown.text, text := printed.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            return text
        time.sleep(0.05)
    return text
