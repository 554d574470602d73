"""Asks the readiness check in a thread of its own, so that one that hangs is an answer too."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    ready: bool
    details: Mapping[str, object] = field(default_factory=dict[str, object])


class _Question:
    """One call of the check; whoever asks while it is under way shares its answer."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.answered = threading.Event()
        self.verdict = Verdict(ready=False)


class Readiness:
    def __init__(
        self,
        check: Callable[[], bool],
        details: Callable[[], Mapping[str, object]] = dict[str, object],
        *,
        timeout: float = 1.0,
    ) -> None:
        self._check = check
        self._details = details
        self._timeout = timeout
        self._lock = threading.Lock()
        self._asked: _Question | None = None

    def ask(self) -> Verdict:
        """The answer, or a no when it takes too long; a check that hangs is never begun a second time."""
        question = self._join_or_begin()
        if question.answered.wait(max(0.0, question.deadline - time.monotonic())):
            return question.verdict
        return Verdict(ready=False, details={"error": f"the readiness check takes over {self._timeout:g} s"})

    def _join_or_begin(self) -> _Question:
        with self._lock:
            if self._asked is None:
                self._asked = _Question(time.monotonic() + self._timeout)
                thread = threading.Thread(
                    target=self._answer, args=(self._asked,), name="readiness", daemon=True
                )
                thread.start()
            return self._asked

    def _answer(self, question: _Question) -> None:
        question.verdict = self._judge()
        with self._lock:
            self._asked = None
        question.answered.set()

    def _judge(self) -> Verdict:
        try:
            return Verdict(ready=bool(self._check()), details=dict(self._details()))
        except Exception as error:  # an answer that never comes would look like a dead process
            logger.exception("the readiness check failed")
            return Verdict(ready=False, details={"error": f"the readiness check failed: {error!r}"})
