"""The one process that runs handlers: started ahead of its first job, kept warm, and replaced when it must be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from herdsman.core.loading import NOTHING
from herdsman.core.work import Load
from herdsman.ports import Clock
from herdsman.worker.child import Answer, Child, Exit
from herdsman.worker.models import Models, Standing
from herdsman.worker.registry import HandlerSpec, check_spec

_MOST_FAILED_STARTS = 3
_PAUSE = timedelta(seconds=1)
_LAST_WORDS_S = 2.0
_LONGEST_TROUBLE = 500


@dataclass(kw_only=True)
class Warm:
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
    _launched_at: float = 0.0
    _failed: int = 0
    _served_load: Load | None = None
    _refused: int = 0
    _served: int = 0
    _broken: str | None = None
    _said: tuple[str, ...] = ()
    """The types that were said to be loaded."""

    @property
    def ready(self) -> bool:
        return self.child is not None and bool(self.specs)

    def standing(self) -> Standing:
        served = self._served_load
        revision = None if served is None else served.revision or None
        models, changes = self.models.told()
        return Standing(models=models, changes=changes, revision=revision, trouble=self.trouble)

    def is_behind(self, order: Load | None) -> bool:
        """Whether the order is a new one, and none that was tried in vain."""
        return order is not None and order.revision > max(self.load.revision, self._refused)

    def follow(self, order: Load | None) -> None:
        """The process ends completely before the next one is started with the new load: both never share a GPU."""
        if order is None or not self.is_behind(order):
            return
        self.say(f"revision {order.revision} is to be loaded: the handler's process is replaced")
        self.close()
        self.models.drop()
        self.load, self._failed, self._broken = order, 0, None

    def get_ready(self, wait: timedelta) -> bool:
        """Whether jobs may come; after at most `wait`, unless a process has to be started first."""
        if self.child is not None and self.specs and not self.child.ended():
            return True
        if self.fault is not None:
            return False
        if self.child is None:
            return self._launch()
        for answer in self.child.listen(wait.total_seconds()):
            self._hear(answer)
        if not self.specs and self._late():
            self._broken = f"the handler's process was not ready within {self.start_limit}"
            self.child.kill()
        self.check()
        return self.ready

    def check(self) -> bool:
        """Whether there is a process; one that ended by itself while no job ran is counted as a failed start."""
        if self.child is not None and self.child.ended():
            how = self.bury()
            self._has_failed(self._broken or f"the handler's process {how} while no job ran")
        return self.child is not None

    def served(self, jobs: int) -> None:
        """After an order: a process that has ended, or has done its share, is replaced by a fresh one."""
        self._served += jobs
        self._failed = 0
        if self.child is None:
            return
        if self.max_jobs is not None and self._served >= self.max_jobs:
            self.bury()

    def bury(self, grace_s: float = 0) -> Exit:
        """Ends the process, where it still lives; the next one is started when jobs may come."""
        assert self.child is not None
        how = self.child.close(grace_s)
        self.child, self.specs, self._served = None, {}, 0
        self.models.forget()
        return how

    def close(self) -> None:
        if self.child is not None:
            self.bury(_LAST_WORDS_S)

    def _launch(self) -> bool:
        self._launched_at = self.clock.monotonic()
        try:
            self.child = self.launch(self.load)
        except OSError as error:
            self._has_failed(f"no process could be started for handlers: {error}")
        return False

    def _late(self) -> bool:
        return self.clock.monotonic() - self._launched_at >= self.start_limit.total_seconds()

    def _hear(self, answer: Answer) -> None:
        if "broken" in answer:
            self._broken = str(answer["broken"])
        elif isinstance(answer.get("ready"), list):
            self.specs = _specs(answer["ready"])
            self._has_started()
            self._say_types()
        else:
            self.models.hear(answer)

    def _has_started(self) -> None:
        self._served_load, self._broken = self.load, None
        self.models.serve(self.load)
        if self.load.revision > self._refused:
            self.trouble = None

    def _say_types(self) -> None:
        """Not with every fresh process: there may be one for each job."""
        types = tuple(sorted(self.specs))
        if types != self._said:
            self._said = types
            self.say(f"handlers are loaded: {', '.join(types)}")

    def _has_failed(self, why: str) -> None:
        """A first start that fails will fail again; a later one may have met a full machine."""
        self._failed += 1
        before, enough = self._served_load, self._failed >= _MOST_FAILED_STARTS
        if before is not None and before != self.load and (enough or self._late()):
            self._go_back(before, why)
        elif before is None or enough:
            self.fault = why
        else:
            self.say(f"{why}; it is started again")
            self.clock.sleep(_PAUSE)

    def _go_back(self, before: Load, why: str) -> None:
        """A load that cannot be had must not cost the pool its worker: it goes on with what it had, and says so."""
        self.trouble = f"revision {self.load.revision} could not be loaded: {why}"[:_LONGEST_TROUBLE]
        self.say(f"{self.trouble}; the worker goes back to what it had")
        self._refused, self.load = self.load.revision, before
        self._failed, self._broken = 0, None


def _specs(given: list[Any]) -> dict[str, HandlerSpec]:
    """Words of a process that is not trusted: what is no handler is none."""
    found: dict[str, HandlerSpec] = {}
    for each in given:
        try:
            spec = HandlerSpec(**cast("dict[str, Any]", each))
            check_spec(spec)
        except (TypeError, ValueError):
            continue
        found[spec.type] = spec
    return found
