"""The one process that runs handlers: started ahead of its first job, kept warm, and replaced when it must be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from herdsman.ports import Clock
from herdsman.worker.child import Answer, Child, Exit
from herdsman.worker.registry import HandlerSpec, check_spec

_MOST_FAILED_STARTS = 3
_PAUSE = timedelta(seconds=1)
_LAST_WORDS_S = 2.0


@dataclass(kw_only=True)
class Warm:
    launch: Callable[[], Child]
    clock: Clock
    say: Callable[[str], None]
    start_limit: timedelta = timedelta(minutes=10)
    """How long a process may take to import its handlers and load what they load."""
    max_jobs: int | None = None
    """After so many jobs the process is replaced; 1 isolates each job."""
    fault: str | None = None
    """Why no process can be had."""
    child: Child | None = None
    specs: Mapping[str, HandlerSpec] = field(default_factory=dict[str, HandlerSpec])
    _launched_at: float = 0.0
    _failed: int = 0
    _ever: bool = False
    _served: int = 0
    _broken: str | None = None

    @property
    def ready(self) -> bool:
        return self.child is not None and bool(self.specs)

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
        return how

    def close(self) -> None:
        if self.child is not None:
            self.bury(_LAST_WORDS_S)

    def _launch(self) -> bool:
        try:
            self.child = self.launch()
        except OSError as error:
            self._has_failed(f"no process could be started for handlers: {error}")
        self._launched_at = self.clock.monotonic()
        return False

    def _late(self) -> bool:
        return self.clock.monotonic() - self._launched_at >= self.start_limit.total_seconds()

    def _hear(self, answer: Answer) -> None:
        if "broken" in answer:
            self._broken = str(answer["broken"])
        elif isinstance(answer.get("ready"), list):
            self.specs = _specs(answer["ready"])
            self._ever, self._broken = True, None

    def _has_failed(self, why: str) -> None:
        """A first start that fails will fail again; a later one may have met a full machine."""
        self._failed += 1
        if not self._ever or self._failed >= _MOST_FAILED_STARTS:
            self.fault = why
            return
        self.say(f"{why}; it is started again")
        self.clock.sleep(_PAUSE)


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
