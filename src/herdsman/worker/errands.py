"""What a handler asks of the queue is done by a thread of its own, so that a slow queue never delays a stop."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from threading import BoundedSemaphore, Event
from typing import Any

from herdsman.core.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.core.model import ClaimKey
from herdsman.core.service import MarkStatus, ServiceMark
from herdsman.ports import Clock, SystemThreads, Threads, WorkQueue

MOST_AT_ONCE = 16
_PAUSE = timedelta(seconds=1)

Reply = Callable[[Mapping[str, object]], None]


class Errands:
    def __init__(
        self, queue: WorkQueue, clock: Clock, *, patience: timedelta, threads: Threads | None = None
    ) -> None:
        """An outage shorter than `patience` is none to the handler: it only waits longer."""
        self._queue = queue
        self._clock = clock
        self._patience = patience
        self._closed = Event()
        self._thread = (threads or SystemThreads()).line("errands")
        self._room = BoundedSemaphore(MOST_AT_ONCE)

    def run(self, key: ClaimKey, answer: Mapping[str, Any], reply: Reply) -> None:
        number = answer.get("ask")
        if not self._room.acquire(blocking=False):
            reply({"reply": number, "error": {"said": f"more than {MOST_AT_ONCE} were asked for at once"}})
            return
        self._thread.submit(self._go, key, answer, reply)

    def close(self) -> None:
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _go(self, key: ClaimKey, answer: Mapping[str, Any], reply: Reply) -> None:
        try:
            reply({"reply": answer.get("ask"), **self._outcome(key, answer)})
        finally:
            self._room.release()

    def _outcome(self, key: ClaimKey, answer: Mapping[str, Any]) -> Mapping[str, object]:
        until = self._clock.monotonic() + self._patience.total_seconds()
        while True:
            try:
                return {"value": self._once(key, answer)}
            except InvalidRequest as error:
                return {"error": {"kind": "refused", "said": str(error)}}
            except (StaleWrite, NotFound) as error:
                return {"error": {"said": str(error)}}
            except HerdsmanError as error:
                if self._closed.is_set() or self._clock.monotonic() >= until:
                    return {"error": {"said": str(error)}}
                self._clock.sleep(_PAUSE)

    def _once(self, key: ClaimKey, answer: Mapping[str, Any]) -> object:
        if "service" in answer:
            return self._queue.mark_service(key, _mark(answer["service"]))
        if answer["checkpoint"] == "put":
            return self._queue.put_checkpoint(key, answer.get("value"))
        return self._queue.get_checkpoint(key)


def _mark(said: Any) -> ServiceMark:
    """Words of a process that is not trusted."""
    match said:
        case {"id": str(external_id), "status": str(status)} if status in set(MarkStatus):
            return ServiceMark(external_id=external_id, status=MarkStatus(status))
        case _:
            raise InvalidRequest(f"{str(said)[:200]!r} does not say where a job is")
