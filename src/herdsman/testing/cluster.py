"""The real server on SQLite in memory, for the tests of your own programs: no socket, and a clock that you move."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Self, cast
from weakref import finalize

import httpx
from fastapi import FastAPI
from sqlalchemy import func, select

from herdsman.access.authenticator import Keyring
from herdsman.client import AsyncClient, Client
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.schema import jobs
from herdsman.db.statements import in_state
from herdsman.db.upgrade import upgrade
from herdsman.fleet.commands import move_worker
from herdsman.fleet.history_sql import read_queues
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.jobs import protocol
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass, JobPolicy
from herdsman.jobs.sweep import Sweeper
from herdsman.ports import Clock, SystemClock
from herdsman.server.app import create_app
from herdsman.server.state import ServerState, build_state
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.clocks import ManualClock
from herdsman.testing.direct_queue import DirectQueue
from herdsman.wire import new_job_id
from herdsman.worker.context import Cancelled, JobContext, Recovered, failure_message

URL = "http://localhost"
TOKEN = "local-cluster"
KEYRING = Keyring(pepper=b"local-cluster")
MOST_RUNS = 100_000
MOST_IDLE = 1_000
DEEPEST = 20
NEVER = float("inf")

Handler = Callable[[Any], object]


class LocalCluster:
    """Jobs run in the calling thread: with `run_all`, with `advance`, or while a client waits for a result.

    Time stands still but for `advance` and the pauses of a waiting client, so an hour of retries takes no time.
    There is no control loop and no process of its own for a handler: one that runs too long is not stopped.
    """

    def __init__(self, *, policy: JobPolicy | None = None, agent: str | None = None) -> None:
        self._clock = ManualClock()
        self._idle = 0
        self._quiet_until = -NEVER
        """Until then no job becomes due, unless a request changes something."""
        self._handlers: dict[str, tuple[Handler, int]] = {}
        self._queues: dict[WorkerId, DirectQueue] = {}
        self._running: list[tuple[DirectQueue, Sequence[Claim]]] = []
        self._services = Services(memory_database(self._clock), policy or JobPolicy(), new_job_id)
        self._sweeper = Sweeper(self._services, self._clock, timedelta(0), staging=timedelta(0))
        state = build_state(self._services, KEYRING, admin_key=TOKEN)
        loop = _LoopThread()
        self._close = finalize(self, _close, loop, state)
        transport = _AppTransport(create_app(state, like=_template()[1]), loop, self._note_request)
        self.client = Client(URL, TOKEN, clock=self, transport=transport, agent=agent)
        self.async_client = AsyncClient(URL, TOKEN, clock=self, transport=transport, agent=agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the server. A cluster that nobody refers to any more is closed too."""
        self.client.close()
        self._close()

    def handle(self, type: str, handler: Handler, *, batch: int = 1) -> None:  # noqa: A002
        """Jobs of this type are run by `handler`, as by a worker; with `batch` it gets a list of up to so many."""
        self._handlers[type] = handler, batch
        self._quiet_until = -NEVER

    def run_all(self) -> int:
        """Runs what is due until nothing is; returns the number of attempts. Retries wait for `advance`."""
        runs = 0
        self._sweeper.pass_once()
        while (done := self.run_next()) or self._sweeper.pass_once().queued:
            runs += done
            if runs > MOST_RUNS:
                raise RuntimeError(f"more than {MOST_RUNS:,} jobs ran and there are more: does a job submit itself?")
        waiting = select(func.min(jobs.c.run_at)).where(
            in_state(jobs.c.status, JobStatus.SCHEDULED, JobStatus.FAILED), jobs.c.type.in_(list(self._handlers))
        )
        # When a delayed or failed job can run.
        due, now = self._services.database.read(lambda tx: (tx.execute(waiting).scalar_one(), tx.now()))
        self._quiet_until = NEVER if due is None else self._clock.monotonic() + (due - now).total_seconds()
        return runs

    def run_next(self) -> int:
        """Runs the next job, or the next batch; returns the number of jobs."""
        depth = len(self._running)
        if not self._handlers or depth >= DEEPEST:
            return 0
        most = {name: batch for name, (_, batch) in self._handlers.items() if batch > 1}
        waiting = self._services.database.read(read_queues)
        for pool in dict.fromkeys(each.pool for each in waiting if each.type in self._handlers):
            # A handler may wait for a job of its own: another worker runs that one.
            queue = self._queue(PoolId(pool), depth + 1)
            if claims := queue.claim(protocol.ClaimRequest(types=tuple(self._handlers), most=most, begin=True)):
                self._idle = 0
                self._running.append((queue, claims))
                try:
                    _run(queue, claims, *self._handlers[claims[0].type])
                finally:
                    self._running.pop()
                return len(claims)
        return 0

    def advance(self, seconds: float) -> int:
        """Lets time pass, then runs what has become due; returns the number of attempts."""
        self._pass_time(timedelta(seconds=seconds))
        return self.run_all()

    def monotonic(self) -> float:
        """Seconds since the start of the cluster."""
        return self._clock.monotonic()

    def sleep(self, duration: timedelta) -> None:
        """Called by a client that waits: runs what is due, then lets time pass."""
        if self._clock.monotonic() >= self._quiet_until and self.run_all():
            self._idle = 0
        else:
            self._idle += 1
        # Where nothing can happen any more, waiting without a timeout would hang a test.
        if self._idle > MOST_IDLE and self._quiet_until == NEVER:
            known = ", ".join(sorted(self._handlers)) or "nothing"
            raise RuntimeError(f"a client waits, and no job is left that could run: there are handlers for {known}")
        self._pass_time(duration)

    def _pass_time(self, duration: timedelta) -> None:
        """Claims of running handlers are kept, as the heartbeats of a worker keep them."""
        self._clock.advance(duration)
        for queue, claims in self._running:
            queue.beat(protocol.WorkerHeartbeat(keys=tuple(claim.key for claim in claims)))

    def _queue(self, pool: PoolId, number: int) -> DirectQueue:
        worker_id = WorkerId(f"local-{number}" if pool == DEFAULT_POOL else f"local-{pool}-{number}")
        if worker_id not in self._queues:
            queue = DirectQueue(
                services=self._services, worker_id=worker_id, clock=self._clock, poll=timedelta(seconds=1)
            )
            queue.enlist(pool)
            move_worker(self._services, worker_id, WorkerStatus.ACTIVE, Reason.READY)
            self._queues[worker_id] = queue
        return self._queues[worker_id]

    def _note_request(self, request: httpx.Request) -> None:
        if request.method != "GET":
            self._quiet_until = -NEVER


def memory_database(clock: Clock) -> Database:
    """A database without jobs, whose time is that of `clock`; only the first one of a process makes the schema."""
    began, transactions = datetime.now(UTC) - timedelta(seconds=clock.monotonic()), count()

    def now(_: Tx) -> datetime:
        # No two at the same instant: jobs are run in the order in which they came.
        return began + timedelta(seconds=clock.monotonic(), microseconds=next(transactions))

    database = Database("sqlite://", clock=SystemClock(), clock_of=now)
    with database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        driver.deserialize(_template()[0])
    return database


@cache
def _template() -> tuple[bytes, FastAPI]:
    """What all clusters of a process begin with: a serialised database without rows, and the routes, which take a quarter
    of a second to build."""
    database = Database("sqlite://", clock=SystemClock())
    upgrade(database)
    services = Services(database, JobPolicy(), new_job_id)
    with database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        return driver.serialize(), create_app(build_state(services, KEYRING))


class _LoopThread:
    """An event loop of its own, since that of the caller may be the one that waits."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._thread = Thread(target=self._run, name="local-cluster", daemon=True)
        self._thread.start()

    def submit(self, doing: Coroutine[Any, Any, httpx.Response]) -> Future[httpx.Response]:
        return asyncio.run_coroutine_threadsafe(doing, self._loop)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        async def until_stopped() -> None:
            await self._stopped.wait()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(until_stopped())


def _close(loop: _LoopThread, state: ServerState) -> None:
    state.stop_waiting()
    loop.stop()
    state.services.database.close()


class _AppTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    def __init__(self, app: FastAPI, loop: _LoopThread, on_request: Callable[[httpx.Request], None]) -> None:
        self._app = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._loop = loop
        self._on_request = on_request

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._on_request(request)
        return self._loop.submit(self._answer(request)).result()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._on_request(request)
        return await asyncio.wrap_future(self._loop.submit(self._answer(request)))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        """A stream of events ends with what has happened so far: nothing more comes while a test reads it."""
        events = request.url.path == "/events"
        if events:
            ending = request.url.copy_merge_params({"follow": "false"})
            request = httpx.Request(request.method, ending, headers=request.headers)
        answer = await self._app.handle_async_request(request)
        body = await answer.aread()
        if events and answer.status_code == 200 and b"data:" not in body:
            return httpx.Response(204)
        return httpx.Response(answer.status_code, headers=answer.headers, content=body)


def _run(queue: DirectQueue, claims: Sequence[Claim], handler: Handler, batch: int) -> None:
    """Runs them and reports how each ended."""
    links = [_Link(queue, claim.key) for claim in claims]
    with ExitStack() as places:
        contexts = [
            JobContext(
                job_id=claim.key.job_id,
                type=claim.type,
                payload=claim.payload,
                agent=claim.agent,
                attempt=claim.attempt,
                token=claim.key.token,
                service_job_id=claim.service_job_id,
                model=claim.model,
                deadline=None if claim.timeout is None else time.monotonic() + claim.timeout.total_seconds(),
                place=Path(
                    places.enter_context(TemporaryDirectory(prefix="herdsman-job-", ignore_cleanup_errors=True))
                ),
                link=link,
            )
            for claim, link in zip(claims, links, strict=True)
        ]
        try:
            results = [handler(contexts[0])] if batch == 1 else _listed(handler(contexts), len(contexts))
        except Exception as error:  # noqa: BLE001  a handler may raise anything; it is told, not swallowed
            results = [error] * len(contexts)
    done = queue.finish([link.ending(result) for link, result in zip(links, results, strict=True)])
    # A result that cannot be stored is the job's own fault.
    again = [
        protocol.Failed(
            each.key, Failure(kind=FailureClass.USER_ERROR, error=f"its result was refused: {each.refused}")
        )
        for each in done.told
        if each.refused is not None and not each.stale
    ]
    if again:
        queue.finish(again)


def _listed(results: object, wanted: int) -> Sequence[object]:
    if not isinstance(results, list | tuple):
        raise TypeError(f"a batch handler returned a {type(results).__name__}: it must return a list")
    found = cast("Sequence[object]", results)
    if len(found) != wanted:
        raise ValueError(f"a batch handler returned {len(found)} results for {wanted} jobs")
    return found


class _Link:
    """The way from a handler to the queue, without a supervisor in between."""

    def __init__(self, queue: DirectQueue, key: ClaimKey) -> None:
        self._queue = queue
        self._key = key
        self._lines = 0
        self._stop: str | None = None

    def tell(self, job_id: str, word: Mapping[str, Any]) -> None:  # noqa: ARG002  there is only one job
        logs: dict[ClaimKey, protocol.LogLines] = {}
        progress: dict[ClaimKey, protocol.Progress] = {}
        if "log" in word:
            lines = tuple(str(word["log"]).splitlines()) or ("",)
            logs[self._key] = protocol.LogLines(first=self._lines, lines=lines)
            self._lines += len(lines)
        elif "progress" in word:
            progress[self._key] = protocol.Progress(done=word["progress"], note=word["note"])
        self._queue.beat(protocol.WorkerHeartbeat(keys=(self._key,), logs=logs, progress=progress))

    def ask(self, job_id: str, word: Mapping[str, Any]) -> Any:  # noqa: ARG002
        if "service" in word:
            mark = protocol.ServiceMark(
                external_id=word["service"]["id"], status=protocol.MarkStatus(word["service"]["status"])
            )
            return self._queue.mark_service(self._key, mark)
        if word["checkpoint"] == "get":
            return self._queue.get_checkpoint(self._key)
        return self._queue.put_checkpoint(self._key, word["value"])

    def cancelled(self, job_id: str) -> bool:  # noqa: ARG002
        reply = self._queue.beat(protocol.WorkerHeartbeat(keys=(self._key,)))
        reasons = (("CANCELLED", reply.cancel), ("LOST", reply.lost))
        self._stop = next((reason for reason, keys in reasons if self._key in keys), None)
        return self._stop is not None

    def why_stopped(self, job_id: str) -> str | None:  # noqa: ARG002
        return self._stop

    def ending(self, result: object) -> protocol.Ending:
        match result:
            case Cancelled() if self.cancelled(self._key.job_id):
                return protocol.GivenBack(self._key, str(result))
            case BaseException():
                failure = failure_message(result)
                known = failure["failure"]
                kind = FailureClass(known) if known in set(FailureClass) else FailureClass.JOB_ERROR
                return protocol.Failed(self._key, Failure(kind=kind, error=failure["error"]))
            case Failure():
                return protocol.Failed(self._key, result)
            case Recovered():
                return protocol.Done(self._key, result.result, timedelta(seconds=result.seconds))
            case _:
                return protocol.Done(self._key, result)
