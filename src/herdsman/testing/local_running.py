"""How a local herd runs a handler: as a worker does, but in this thread and without a process of its own."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import (
    Done,
    Ending,
    Failed,
    FinishAndClaim,
    GivenBack,
    LogLines,
    MarkStatus,
    Progress,
    ServiceMark,
    WorkerHeartbeat,
)
from herdsman.testing.queue import MemoryQueue
from herdsman.worker.context import Cancelled, JobContext, Recovered, failure_class, failure_text

Handler = Callable[[Any], object]


def run_claims(queue: MemoryQueue, claims: Sequence[Claim], handler: Handler, *, batch: int) -> None:
    """Runs them and reports how each ended."""
    with ExitStack() as places:
        jobs = [_context(queue, claim, places) for claim in claims]
        results = _results(handler, jobs, batch)
    pairs = zip(claims, results, strict=True)
    told = queue.finish([_ending(queue, claim.key, result) for claim, result in pairs])
    again = _refused(told)
    if again:
        queue.finish(again)


def _refused(exchange: FinishAndClaim) -> list[Ending]:
    """A result that cannot be stored is the job's own fault."""
    return [
        Failed(
            told.key, Failure(kind=FailureClass.USER_ERROR, error=f"its result was refused: {told.refused}")
        )
        for told in exchange.told
        if told.refused is not None and not told.stale
    ]


def _context(queue: MemoryQueue, claim: Claim, places: ExitStack) -> JobContext:
    place = Path(mkdtemp(prefix="herdsman-job-"))
    places.callback(shutil.rmtree, place, ignore_errors=True)
    seconds = None if claim.timeout is None else claim.timeout.total_seconds()
    return JobContext(
        job_id=claim.key.job_id,
        type=claim.type,
        payload=claim.payload,
        attempt=claim.attempt,
        token=claim.key.token,
        service_job_id=claim.service_job_id,
        model=claim.model,
        deadline=None if seconds is None else time.monotonic() + seconds,
        place=place,
        link=_Line(queue, claim.key),
    )


def _results(handler: Handler, jobs: list[JobContext], batch: int) -> Sequence[object]:
    try:
        return [handler(jobs[0])] if batch == 1 else _as_many(handler(jobs), len(jobs))
    except Exception as error:  # noqa: BLE001  a handler may raise anything; it is told, not swallowed
        return [error] * len(jobs)


def _as_many(results: object, jobs: int) -> Sequence[object]:
    if not isinstance(results, list | tuple):
        raise TypeError(f"a batch handler returned a {type(results).__name__}: it must return a list")
    found = cast("Sequence[object]", results)
    if len(found) != jobs:
        raise ValueError(f"a batch handler returned {len(found)} results for {jobs} jobs")
    return found


def _ending(queue: MemoryQueue, key: ClaimKey, result: object) -> Ending:
    match result:
        case Cancelled() if queue.jobs.job(key.job_id).cancel_requested:
            return GivenBack(key, str(result))
        case BaseException():
            said = failure_class(result)
            known = FailureClass(said) if said in set(FailureClass) else FailureClass.JOB_ERROR
            return Failed(key, Failure(kind=known, error=failure_text(result)))
        case Failure():
            return Failed(key, result)
        case Recovered():
            return Done(key, result.result, timedelta(seconds=result.seconds))
        case _:
            return Done(key, result)


class _Line:
    """The way from a handler to the queue, without a supervisor in between."""

    def __init__(self, queue: MemoryQueue, key: ClaimKey) -> None:
        self._queue = queue
        self._key = key
        self._lines = 0
        self._stop: str | None = None

    def tell(self, job_id: str, word: Mapping[str, Any]) -> None:  # noqa: ARG002  there is only one job
        logs: dict[ClaimKey, LogLines] = {}
        progress: dict[ClaimKey, Progress] = {}
        if "log" in word:
            lines = tuple(str(word["log"]).splitlines()) or ("",)
            logs[self._key] = LogLines(first=self._lines, lines=lines)
            self._lines += len(lines)
        elif "progress" in word:
            progress[self._key] = Progress(done=word["progress"], note=word["note"])
        self._queue.beat(WorkerHeartbeat(keys=(self._key,), logs=logs, progress=progress))

    def ask(self, job_id: str, word: Mapping[str, Any]) -> Any:  # noqa: ARG002
        if "service" in word:
            mark = ServiceMark(
                external_id=word["service"]["id"], status=MarkStatus(word["service"]["status"])
            )
            return self._queue.mark_service(self._key, mark)
        if word["checkpoint"] == "get":
            return self._queue.get_checkpoint(self._key)
        return self._queue.put_checkpoint(self._key, word["value"])

    def cancelled(self, job_id: str) -> bool:  # noqa: ARG002
        orders = self._queue.beat(WorkerHeartbeat(keys=(self._key,)))
        self._stop = next(
            (why for why, keys in (("CANCELLED", orders.cancel), ("LOST", orders.lost)) if self._key in keys),
            None,
        )
        return self._stop is not None

    def why_stopped(self, job_id: str) -> str | None:  # noqa: ARG002
        return self._stop
