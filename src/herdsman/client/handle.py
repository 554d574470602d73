"""One job, as the program sees it that submitted it."""

from collections.abc import Iterator
from typing import Any

from herdsman.client import calls
from herdsman.client.driving import iterate, run
from herdsman.client.transport import Transport
from herdsman.client.waiting import Seconds
from herdsman.client.watching import LogLine, Watching
from herdsman.wire.jobs import AttemptOut, EventOut, JobDetail, RetryIn

KEEP = object()
"""Says that a job keeps the payload it has, since None is a payload too."""


class JobHandle:
    """Holds nothing but the id: what it tells is asked of the server each time."""

    def __init__(self, transport: Transport, job_id: str, *, created: bool | None = None) -> None:
        self._transport = transport
        self._watching = Watching(transport)
        self.id = job_id
        self.created = created
        """False when the same job had been submitted before; None when this handle submitted nothing."""

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    def status(self) -> str:
        return self.look().status

    def look(self) -> JobDetail:
        """Everything there is to know about the job, except its result."""
        return run(self._watching.look(self.id))

    def wait(self, timeout: Seconds | None = None) -> JobDetail:
        """Until it has ended in whatever way; `TimeoutError` when it has not by then."""
        return run(self._watching.wait(self.id, timeout))

    def result(self, timeout: Seconds | None = None) -> Any:
        """Waits for it. `JobFailed`, `JobCancelled` or `TimeoutError` say why there is none."""
        return run(self._watching.result(self.id, timeout))

    def cancel(self) -> str:
        """From here on the job is never done; the answer is its status, which may take a moment to become final."""
        return run(self._transport.send(calls.cancel(self.id))).status

    def retry(self, payload: object = KEEP) -> None:
        """Run a job that has ended once more; with a payload, with that one."""
        run(self._transport.send(calls.retry(self.id, retry_in(payload))))

    def attempts(self) -> tuple[AttemptOut, ...]:
        return run(self._transport.send(calls.attempts(self.id))).attempts

    def events(self) -> Iterator[EventOut]:
        """What happened to it so far."""
        return iterate(self._watching.history(self.id))

    def logs(self, *, follow: bool = False) -> Iterator[LogLine]:
        return iterate(self._watching.logs(self.id, follow=follow))


def retry_in(payload: object) -> RetryIn:
    return RetryIn() if payload is KEEP else RetryIn(payload=payload, edit=True)
