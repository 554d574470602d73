"""What has really happened, whatever the answers said."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_KEPT = 100_000


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request and what became of it. It is in the ledger from its arrival."""

    method: str
    path: str
    query: Mapping[str, str]
    status: int | None = None
    """None if no answer was given, or not yet."""


@dataclass(slots=True, kw_only=True)
class Render:
    """One time that a job was really worked on, also if nothing but cached nodes was in it."""

    prompt_id: str
    client_id: str | None
    life: int = 0
    """How often the service had been restarted by then: what ran in one life is not remembered in the next."""
    cached: tuple[str, ...] = ()
    worked: list[str] = field(default_factory=list[str])
    """The nodes that did something, in order."""
    end: str | None = None
    """`success`, `error`, `interrupted` or `killed`; None while it runs."""
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of a job, and whether anybody was there to hear it."""

    prompt_id: str
    type: str
    data: Mapping[str, Any]
    heard: bool


class Ledger:
    """The ground truth, over all restarts."""

    def __init__(self) -> None:
        self._requests: deque[Asked] = deque(maxlen=MOST_KEPT)
        self._renders: deque[Render] = deque(maxlen=MOST_KEPT)
        self._messages: deque[Said] = deque(maxlen=MOST_KEPT)
        self._lock = threading.Lock()

    @property
    def requests(self) -> tuple[Asked, ...]:
        with self._lock:
            return tuple(self._requests)

    @property
    def renders(self) -> tuple[Render, ...]:
        with self._lock:
            return tuple(self._renders)

    @property
    def messages(self) -> tuple[Said, ...]:
        with self._lock:
            return tuple(self._messages)

    def of(self, prompt_id: str) -> tuple[Render, ...]:
        return tuple(render for render in self.renders if render.prompt_id == prompt_id)

    def note_request(self, asked: Asked) -> None:
        with self._lock:
            self._requests.append(asked)

    def note_render(self, render: Render) -> None:
        with self._lock:
            self._renders.append(render)

    def note_message(self, said: Said) -> None:
        with self._lock:
            self._messages.append(said)
