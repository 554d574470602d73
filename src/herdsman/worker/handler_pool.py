"""The handler's process and what it has loaded: started ahead of its first job, kept warm, replaced when it must be."""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from typing import Any, cast

from herdsman.errors import InvalidRequest
from herdsman.ids import check_model
from herdsman.jobs.protocol import NOTHING, Load
from herdsman.jobs.worker_wire import MOST_MODELS
from herdsman.ports import Clock
from herdsman.worker.handler_process import Child, Exit
from herdsman.worker.registry import HandlerSpec

_MOST_FAILED_STARTS = 3
_PAUSE = timedelta(seconds=1)
_LAST_WORDS_S = 2.0
_LONGEST_TROUBLE = 500
_TIDY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelState:
    """What a worker serves, as its heartbeats report it."""

    models: tuple[str, ...] = ()
    changes: int = 0
    """How often they have changed: a server that guessed in between needs them again."""
    revision: int | None = None
    """None while it has served nothing yet, or where its pool has no editions."""
    trouble: str | None = None
    """Why it could not load what it was asked to."""


class Models:
    """The models that one handler's process has loaded, forgotten with it. Safe to use from any thread."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        """Oldest first. Replaced as a whole, under the lock; read without it."""
        self._lock = Lock()
        self._kept: tuple[str, ...] = ()
        """Each process loads these before its first job, so they stay when it is replaced."""
        self._by_jobs: set[str] = set()
        """Known from a job alone: the next job with another one may have taken their room."""
        self._begun: set[str] = set()
        self._changes = 0

    def snapshot(self) -> tuple[tuple[str, ...], int]:
        """With the number of changes so far."""
        with self._lock:
            return self.names, self._changes

    def serve(self, load: Load) -> None:
        """A process is ready, and with it what it was started for."""
        wanted = (*(() if load.model is None else (load.model,)), *load.preload)
        with self._lock:
            self._kept = tuple(dict.fromkeys(wanted))[:MOST_MODELS]
            self._replace([*self._kept, *self.names])

    def forget(self, *, kept_too: bool = False) -> None:
        """The process is gone; the next one loads the same, unless it is for something else."""
        with self._lock:
            self._kept = () if kept_too else self._kept
            self._by_jobs, self._begun = set(), set()
            self._replace(self._kept)

    def begin(self, named: Iterable[str | None]) -> None:
        """Jobs begin that name these."""
        with self._lock:
            self._begun = {each for each in named if each is not None and each not in self.names}
            if self._begun:
                before, self._by_jobs = self._by_jobs, set(self._begun)
                self._replace([*(each for each in self.names if each not in before), *sorted(self._begun)])

    def undo(self) -> None:
        """None of the jobs that began came to its end, so nobody knows whether their models were loaded."""
        with self._lock:
            begun, self._begun = self._begun, set()
            if begun:
                self._by_jobs -= begun
                self._replace([each for each in self.names if each not in begun])

    def hear(self, answer: Mapping[str, Any]) -> None:
        """A handler says itself what it has loaded, and what no longer. Its words are not trusted."""
        if "loaded" not in answer and "unloaded" not in answer:
            return
        loaded = _usable(answer.get("loaded"))
        named = {*loaded, *_usable(answer.get("unloaded"))}
        with self._lock:
            self._by_jobs -= named
            self._begun -= named
            self._replace([*(each for each in self.names if each not in named), *loaded])

    def _replace(self, names: Iterable[str]) -> None:
        """Where they are too many, the oldest go, but those of the pool."""
        found = dict.fromkeys(names)
        surplus = max(0, len(found) - MOST_MODELS)
        gone = [each for each in found if each not in self._kept][:surplus]
        self.names = tuple(each for each in found if each not in gone)
        self._changes += 1


def _usable(said: object) -> list[str]:
    names: list[str] = []
    for each in cast("list[object]", said)[:MOST_MODELS] if isinstance(said, list) else ():
        with suppress(InvalidRequest):
            if isinstance(each, str):
                check_model("model", each)
                names.append(each)
    return names


@dataclass(kw_only=True)
class HandlerPool:
    launch: Callable[[Load], Child]
    clock: Clock
    say: Callable[[str], None]
    start_limit: timedelta = timedelta(minutes=10)
    """How long a process may take to import its handlers and load what they load."""
    max_jobs: int | None = None
    """After so many jobs the process is replaced; 1 isolates each job."""
    fault: str | None = None
    """Why no process can be had."""
    load: Load = NOTHING
    """What the process has to have loaded."""
    trouble: str | None = None
    """Why the last order to load something else could not be followed."""
    child: Child | None = None
    models: Models = field(default_factory=Models)
    specs: Mapping[str, HandlerSpec] = field(default_factory=dict[str, HandlerSpec])
    ready: bool = False
    """There is a process, and it has loaded its handlers."""
    _launched_at: float = 0.0
    _failed: int = 0
    _served_load: Load | None = None
    _refused: int = 0
    _served: int = 0
    _tidied_at: float = 0.0
    _broken: str | None = None
    _said: tuple[str, ...] = ()
    """The types that were said to be loaded."""

    def model_state(self) -> ModelState:
        served = self._served_load
        revision = None if served is None else served.revision or None
        models, changes = self.models.snapshot()
        return ModelState(models=models, changes=changes, revision=revision, trouble=self.trouble)

    def is_behind(self, order: Load | None) -> bool:
        """Whether the order is a new one, and none that was tried in vain."""
        return order is not None and order.revision > max(self.load.revision, self._refused)

    def get_ready(self, wait: timedelta, order: Load | None = None) -> bool:
        """Whether jobs may come; after at most `wait`, unless a process has to be started first.

        Where `order` is a new one, the process ends completely before the next one is started with the new load: both
        never share a GPU.
        """
        if order is not None and self.is_behind(order):
            self._replace_for(order)
        if self.child is not None and self.specs and not self.child.ended():
            return True
        if self.fault is not None:
            return False
        if self.child is None:
            self._launched_at = self.clock.monotonic()
            try:
                self.child = self.launch(self.load)
            except OSError as error:
                self._has_failed(f"no process could be started for handlers: {error}")
            return False
        for answer in self.child.listen(wait.total_seconds()):
            if "broken" in answer:
                self._broken = str(answer["broken"])
            elif isinstance(answer.get("ready"), list):
                self._loaded(answer["ready"])
            else:
                self.models.hear(answer)
        if not self.specs and self._late():
            self._broken = f"the handler's process was not ready within {self.start_limit}"
            self.child.kill()
        self.check()
        return self.ready

    def _replace_for(self, order: Load) -> None:
        self.say(f"revision {order.revision} is to be loaded: the handler's process is replaced")
        self.close()
        self.models.forget(kept_too=True)
        self.load, self._failed, self._broken = order, 0, None

    def check(self) -> bool:
        """Whether there is a process; one that ended by itself while no job ran is counted as a failed start."""
        if self.child is not None and self.child.ended():
            how = self.end()
            self._has_failed(self._broken or f"the handler's process {how} while no job ran")
        return self.child is not None

    @property
    def share(self) -> float:
        """How many jobs its process may still run."""
        return math.inf if self.max_jobs is None else self.max_jobs - self._served

    def served(self, jobs: int, *, made: bool = True, following: str = "") -> Exit | None:
        """After an order: how its process ended, if it did. One that has done its share is replaced by a fresh one.

        `following` names the workspaces of the order that is in the process already. What jobs left behind is removed
        at once where they `made` a workspace or nothing follows, and otherwise now and then.
        """
        assert self.child is not None
        self._failed = 0
        self._served += jobs
        if self.child.ended():
            return self.end()
        now = self.clock.monotonic()
        if not following:
            self.child.send({"until": None})  # it holds no claim any more
        if made or not following or now - self._tidied_at >= _TIDY_S:
            self._tidied_at = now
            self.child.tidy(following, now if following else None)
        if self.max_jobs is not None and self._served >= self.max_jobs:
            self.end()
        return None

    def end(self, grace_s: float = 0) -> Exit:
        """Ends the process, where it still lives; the next one is started when jobs may come."""
        assert self.child is not None
        how = self.child.close(grace_s)
        self.child, self.specs, self.ready, self._served = None, {}, False, 0
        self.models.forget()
        return how

    def close(self) -> None:
        if self.child is not None:
            self.end(_LAST_WORDS_S)

    def _late(self) -> bool:
        return self.clock.monotonic() - self._launched_at >= self.start_limit.total_seconds()

    def _loaded(self, given: list[Any]) -> None:
        """The process is not trusted: what is no handler is left out."""
        found: dict[str, HandlerSpec] = {}
        for each in given:
            with suppress(TypeError, ValueError):
                spec = HandlerSpec(**cast("dict[str, Any]", each))
                found[spec.type] = spec
        self.specs, self.ready = found, bool(found)
        self._served_load, self._broken = self.load, None
        self.models.serve(self.load)
        if self.load.revision > self._refused:
            self.trouble = None
        # Not with every fresh process: there may be one for each job.
        types = tuple(sorted(self.specs))
        if types != self._said:
            self._said = types
            self.say(f"handlers are loaded: {', '.join(types)}")

    def _has_failed(self, why: str) -> None:
        """A first start that fails will fail again; a later one may have met a full machine."""
        self._failed += 1
        before, enough = self._served_load, self._failed >= _MOST_FAILED_STARTS
        if before is not None and before != self.load and (enough or self._late()):
            # A load that cannot be had must not cost the pool its worker: it goes on with what it had, and
            # says so.
            self.trouble = f"revision {self.load.revision} could not be loaded: {why}"[:_LONGEST_TROUBLE]
            self.say(f"{self.trouble}; the worker goes back to what it had")
            self._refused, self.load = self.load.revision, before
            self._failed, self._broken = 0, None
        elif before is None or enough:
            self.fault = why
        else:
            self.say(f"{why}; it is started again")
            self.clock.sleep(_PAUSE)
