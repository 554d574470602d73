"""The jobs of the service: waiting, running and over; and the ledger of what has really happened."""

import heapq
import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_HISTORY = 10_000


@dataclass(slots=True, kw_only=True)
class Job:
    number: float
    prompt_id: str
    workflow: dict[str, Any]
    extra_data: dict[str, Any]
    outputs: list[str]
    started_ms: int | None = None

    @property
    def client_id(self) -> str | None:
        return self.extra_data.get("client_id")

    def shown(self) -> list[Any]:
        return [self.number, self.prompt_id, self.workflow, self.extra_data, self.outputs]


@dataclass(slots=True, kw_only=True)
class Past:
    """A job that is over, as the history keeps it."""

    job: Job
    outputs: dict[str, Any]
    status: str
    ended_ms: int
    messages: list[list[Any]]

    def shown(self) -> dict[str, Any]:
        return {
            "prompt": self.job.shown(),
            "outputs": self.outputs,
            "status": {"status_str": self.status, "completed": self.status == "success", "messages": self.messages},
            "meta": {
                each: {"node_id": each, "display_node": each, "parent_node": None, "real_node_id": each}
                for each in self.outputs
            },
        }


class Jobs:
    """Ids are not checked: the same one may wait twice, and the later end replaces the earlier."""

    def __init__(self, history: dict[str, Past] | None = None) -> None:
        self._waiting: list[tuple[float, int, Job]] = []
        self._running: Job | None = None
        self.history = history or {}
        self._arrivals = itertools.count()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, job: Job) -> bool:
        """False if it stands beside one with the same number and id: it is queued all the same."""
        with self._changed:
            duplicate = any((each.number, each.prompt_id) == (job.number, job.prompt_id) for each in self.waiting)
            heapq.heappush(self._waiting, (job.number, next(self._arrivals), job))
            self._changed.notify_all()
            return not duplicate

    def take(self) -> Job | None:
        """The next one, which runs from now on; None when there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._running = heapq.heappop(self._waiting)[2]
            return self._running

    def end(self, past: Past) -> None:
        """Out of the queue and into the history in one step: nobody sees it in neither."""
        with self._changed:
            self._running = None
            self.history.pop(past.job.prompt_id, None)
            self.history[past.job.prompt_id] = past
            while len(self.history) > MOST_HISTORY:
                del self.history[next(iter(self.history))]

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def waiting(self) -> list[Job]:
        """In the order of the heap, which is not that of the work."""
        with self._changed:
            return [job for _, _, job in self._waiting]

    @property
    def running(self) -> Job | None:
        return self._running

    @property
    def remaining(self) -> int:
        with self._changed:
            return len(self._waiting) + (self._running is not None)

    def shown(self) -> dict[str, Any]:
        with self._changed:
            running = [] if self._running is None else [self._running.shown()]
            return {"queue_running": running, "queue_pending": [job.shown() for job in self.waiting]}

    def past(self) -> dict[str, Past]:
        with self._changed:
            return dict(self.history)

    def find(self, prompt_id: str) -> Job | Past | None:
        """In one step, so that a job which ends meanwhile is not missed."""
        with self._changed:
            if self._running is not None and self._running.prompt_id == prompt_id:
                return self._running
            waiting = next((job for job in self.waiting if job.prompt_id == prompt_id), None)
            return waiting or self.history.get(prompt_id)

    def forget(self, prompt_id: str | None) -> None:
        """One of the history, or all of it."""
        with self._changed:
            if prompt_id is None:
                self.history.clear()
            else:
                self.history.pop(prompt_id, None)

    def drop(self, prompt_id: str | None) -> None:
        """One of those that wait, or all of them; what runs is not touched."""
        with self._changed:
            if prompt_id is None:
                self._waiting.clear()
                return
            found = next((each for each in self._waiting if each[2].prompt_id == prompt_id), None)
            if found is not None:
                self._waiting.remove(found)
                heapq.heapify(self._waiting)


@dataclass(slots=True, kw_only=True)
class RequestRecord:
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
class SentMessage:
    """One message of a job, and whether anybody was there to hear it."""

    prompt_id: str
    type: str
    data: Mapping[str, Any]
    heard: bool


@dataclass(slots=True)
class Ledger:
    """The ground truth, over all restarts; in the order of arrival."""

    requests: list[RequestRecord] = field(default_factory=list[RequestRecord])
    renders: list[Render] = field(default_factory=list[Render])
    messages: list[SentMessage] = field(default_factory=list[SentMessage])

    def of(self, prompt_id: str) -> list[Render]:
        return [render for render in self.renders if render.prompt_id == prompt_id]
