"""Handlers that are loaded again when their source files change: for who writes them, not for production."""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from herdsman.jobs.protocol import Load
from herdsman.worker.handler_main import die_with, leave_others_alone
from herdsman.worker.handler_pool import HandlerPool
from herdsman.worker.registry import Sources, load

Stamps = Mapping[str, tuple[int, int]]
"""Of each file when it was changed, and its size."""

MOST_FILES = 2_000
MOST_DIRECTORIES = 500
LONGEST_CHECK_S = 300.0
QUICK = timedelta(milliseconds=500)
"""How long one call waits for a job here: nobody likes to wait for a file that was just saved."""
_LOOK_S = 0.3
_PATIENCE_S = 10.0
_SHARE = 20
"""At most this fraction of the time goes into looking at files."""
_PASSED_OVER = ("__pycache__", "node_modules", "site-packages", "venv")
LONGEST_ERROR = 8_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a try to import the handlers."""

    files: tuple[str, ...] = ()
    """Where they come from."""
    error: str | None = None


@dataclass(kw_only=True)
class Reloading(HandlerPool):
    """New handlers are tried aside first. Those that cannot be imported are reported, and the old ones go on."""

    sources: Sources
    environment: Mapping[str, str]
    directory: Path
    """Its files are watched, and those that the handlers come from."""
    _files: tuple[str, ...] = ()
    _seen: Stamps = field(default_factory=dict[str, tuple[int, int]])
    _check: "SourceCheck | None" = None
    _fresh: bool = False
    """Newer handlers can be had than those of the process."""
    _first: bool = True
    _spoiled: bool = False
    """No process can be had with these handlers: the next change is waited for."""
    _look_at: float = 0.0
    _patient_until: float = 0.0

    def is_behind(self, order: Load | None) -> bool:
        """So the job at hand is the last with the old handlers."""
        self._look()
        return self._fresh or self._undecided() or super().is_behind(order)

    def get_ready(self, wait: timedelta, order: Load | None = None) -> bool:
        self._look()
        if order is not None and super().is_behind(order):
            self._replace_for(order)
        elif self._fresh:
            self.say("the handlers have changed: their process is replaced")
            self.close()
            self._said = ()
            self._fresh, self._spoiled, self._failed, self._broken = False, False, 0, None
        if self._spoiled or self._undecided():
            self.clock.sleep(wait)
            return False
        return super().get_ready(wait)

    def close(self) -> None:
        """A try that goes on is made again, should this not be the end."""
        if self._check is not None:
            self._check.close()
            self._check, self._seen = None, {}
        super().close()

    def _undecided(self) -> bool:
        """Who has just saved a file wants the next job to run it: that waits a moment for the verdict."""
        return self._check is not None and not self._first and self.clock.monotonic() < self._patient_until

    def _has_failed(self, why: str) -> None:
        """A mistake in a source file is about to be repaired: that ends no worker."""
        super()._has_failed(why)
        if self.fault is not None:
            self.say(f"{self.fault}; it is tried again when a file changes")
            self.fault, self._spoiled = None, True

    def _look(self) -> None:
        if self._check is not None and (found := self._check.verdict()) is not None:
            self._check.close()
            self._check = None
            self._judge(found)
        began = self.clock.monotonic()
        if began < self._look_at:
            return
        now = self._stamps()
        self._look_at = self.clock.monotonic() + max(_LOOK_S, _SHARE * (self.clock.monotonic() - began))
        if now == self._seen:
            return
        # What was good a moment ago is not taken any more: the newer must prove itself.
        if self._check is not None:
            self._check.close()
        self._first = not self._seen and self._first
        self._seen, self._fresh = now, False
        self._check = SourceCheck(self.sources, self.environment)
        self._patient_until = self.clock.monotonic() + _PATIENCE_S

    def _judge(self, found: Verdict) -> None:
        if found.error is None:
            # What is watched from now on was not seen before, and is no change.
            known, self._files = self._seen, found.files
            self._seen = {file: known.get(file, stamp) for file, stamp in self._stamps().items()}
            # The very first try only tells where the handlers come from: the process is started with the same.
            self._fresh = not self._first or self._spoiled
        elif not self._first:
            kept = "no jobs are run" if self.child is None else "the old ones go on"
            self.say(f"the handlers cannot be loaded, {kept} until that is repaired:\n{found.error}")
        self._first = False

    def _stamps(self) -> Stamps:
        """Of the known files and of all Python files below the directory, as far as they can be counted."""
        names = set(self._files)
        for number, (place, places, files) in enumerate(os.walk(self.directory)):
            places[:] = sorted(each for each in places if not each.startswith(".") and each not in _PASSED_OVER)
            names |= {str(Path(place, each)) for each in files if each.endswith(".py")}
            if number >= MOST_DIRECTORIES or len(names) >= MOST_FILES:
                break
        stamps: dict[str, tuple[int, int]] = {}
        for name in sorted(names):
            with suppress(OSError):  # it was just removed, or an editor puts another in its place
                found = Path(name).stat()
                stamps[name] = found.st_mtime_ns, found.st_size
        return stamps


class SourceCheck:
    """Imports the handlers in a process of its own, which prepares nothing and runs no job."""

    def __init__(self, sources: Sources, environment: Mapping[str, str]) -> None:
        self._place = TemporaryDirectory(prefix="herdsman-check-")
        self._said = Path(self._place.name) / "verdict"
        words = [str(os.getpid()), str(self._said), str(LONGEST_CHECK_S)]
        self._process = subprocess.Popen(  # noqa: S603  our own module, with no word from a job
            [sys.executable, "-P", "-m", "herdsman.worker.reload", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            process_group=0,
        )
        assert self._process.stdin is not None
        with self._process.stdin as pipe, suppress(BrokenPipeError):
            pipe.write(json.dumps(asdict(sources)).encode())

    def verdict(self) -> Verdict | None:
        if (status := self._process.poll()) is None:
            return None
        if not self._said.exists():
            return Verdict(error=f"the process that tried to import them ended with status {status}")
        given = json.loads(self._said.read_text(encoding="utf-8"))
        return Verdict(files=tuple(given["files"]), error=given["error"])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._place.cleanup()


def main() -> None:
    parent, said, seconds = sys.argv[1:]
    die_with(int(parent))
    leave_others_alone()
    signal.alarm(int(float(seconds)))
    sources, error = Sources(**json.load(sys.stdin)), None
    sys.path[:0] = sources.paths
    try:
        load(sources)
    except BaseException as failed:  # noqa: BLE001  a module may raise anything while it is imported
        error = str(failed)
        if (cause := failed.__cause__) is not None:  # with its line, as Python shows it, without our own frames
            theirs = [each for each in traceback.extract_tb(cause.__traceback__) if _is_theirs(each.filename)]
            error = "".join([*traceback.format_list(theirs), *traceback.format_exception_only(cause)])
        error = error[-LONGEST_ERROR:].rstrip()
    found = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    files = sorted(each for each in found if isinstance(each, str) and each.endswith(".py") and _is_theirs(each))
    Path(said).write_text(json.dumps({"files": files[:MOST_FILES], "error": error}), encoding="utf-8")
    os._exit(0)  # threads that a module has started need not end first


def _is_theirs(file: str) -> bool:
    """Not of Python, not ours, and not installed: what somebody writes on."""
    ours = str(Path(__file__).resolve().parents[1])
    away = (ours, sys.prefix, sys.base_prefix, "<")
    return not file.startswith(away) and "site-packages" not in file


if __name__ == "__main__":
    main()
