"""What a worker has loaded: what its pool wants, what its handlers say, and the model of the last job that named one."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

from herdsman.core.errors import InvalidRequest
from herdsman.core.request import check_model
from herdsman.core.work import Load
from herdsman.wire.jobs import MOST_MODELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a worker serves, as its beats tell it."""

    models: tuple[str, ...] = ()
    changes: int = 0
    """How often they have changed: who guessed at a change in between must be told again."""
    revision: int | None = None
    """None while it has served nothing yet, or where its pool has no editions."""
    trouble: str | None = None
    """Why it could not load what it was told to."""


class Models:
    """Of one handler's process, and forgotten with it. From any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: tuple[str, ...] = ()
        """Each process loads these before its first job, so they stay when it is replaced."""
        self._here: dict[str, None] = {}
        self._by_jobs: set[str] = set()
        """Known from a job alone: the next job with another one may have taken their room."""
        self._begun: set[str] = set()
        self._changes = 0

    def names(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._here)

    def told(self) -> tuple[tuple[str, ...], int]:
        """With the number of changes so far."""
        with self._lock:
            return tuple(self._here), self._changes

    def serve(self, load: Load) -> None:
        """A process is ready, and with it what it was started for."""
        wanted = (*(() if load.model is None else (load.model,)), *load.preload)
        with self._lock:
            self._changes += 1
            self._kept = tuple(dict.fromkeys(wanted))[:MOST_MODELS]
            self._here = dict.fromkeys([*self._kept, *self._here])
            self._shrink()

    def forget(self) -> None:
        """The process is gone; the next one loads the same."""
        with self._lock:
            self._changes += 1
            self._here = dict.fromkeys(self._kept)
            self._by_jobs, self._begun = set(), set()

    def drop(self) -> None:
        """The process is gone, and the next one is for something else."""
        with self._lock:
            self._changes += 1
            self._kept, self._here = (), {}
            self._by_jobs, self._begun = set(), set()

    def begin(self, named: Iterable[str | None]) -> None:
        """Jobs begin that name these."""
        with self._lock:
            self._begun = {each for each in named if each is not None and each not in self._here}
            if not self._begun:
                return
            self._changes += 1
            for old in self._by_jobs:
                self._here.pop(old, None)
            self._by_jobs = set(self._begun)
            self._add(sorted(self._begun))

    def undo(self) -> None:
        """None of the jobs that began came to its end, so nobody knows whether their models were loaded."""
        with self._lock:
            self._changes += bool(self._begun)
            for name in self._begun:
                self._here.pop(name, None)
            self._by_jobs -= self._begun
            self._begun = set()

    def hear(self, answer: Mapping[str, Any]) -> None:
        """A handler says itself what it has loaded, and what no longer. Its words are not trusted."""
        if "loaded" not in answer and "unloaded" not in answer:
            return
        loaded, unloaded = _usable(answer.get("loaded")), _usable(answer.get("unloaded"))
        with self._lock:
            self._changes += 1
            self._by_jobs -= {*loaded, *unloaded}
            self._begun -= {*loaded, *unloaded}
            for name in unloaded:
                self._here.pop(name, None)
            self._add(loaded)

    def _add(self, names: Collection[str]) -> None:
        for name in names:
            self._here.pop(name, None)
            self._here[name] = None
        self._shrink()

    def _shrink(self) -> None:
        """The oldest go first, but those of the pool."""
        for name in [each for each in self._here if each not in self._kept]:
            if len(self._here) <= MOST_MODELS:
                return
            del self._here[name]


def _usable(said: object) -> list[str]:
    found = cast("list[object]", said) if isinstance(said, list) else []
    texts = [each for each in found[:MOST_MODELS] if isinstance(each, str)]
    return [each for each in texts if _is_name(each)]


def _is_name(text: str) -> bool:
    try:
        check_model("model", text)
    except InvalidRequest:
        return False
    return True
