"""The jobs of one life of the service: waiting, running, and those that are over."""

import heapq
import itertools
import threading
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
    told: int = 0
    """Messages about it so far."""
    silenced: bool = False
    """Its end is told to nobody."""

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
    completed: bool
    ended_ms: int
    messages: list[list[Any]] = field(default_factory=list[list[Any]])

    def shown(self) -> dict[str, Any]:
        return {
            "prompt": self.job.shown(),
            "outputs": self.outputs,
            "status": {"status_str": self.status, "completed": self.completed, "messages": self.messages},
            "meta": {
                each: {"node_id": each, "display_node": each, "parent_node": None, "real_node_id": each}
                for each in self.outputs
            },
        }


class Jobs:
    """Ids are not looked at: the same one may wait twice, and the later end replaces the earlier."""

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
            twin = any((each.number, each.prompt_id) == (job.number, job.prompt_id) for each in self.waiting)
            heapq.heappush(self._waiting, (job.number, next(self._arrivals), job))
            self._changed.notify_all()
            return not twin

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

    def look(self, prompt_id: str) -> Job | Past | None:
        """In one look, so that a job which ends meanwhile is not missed."""
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
