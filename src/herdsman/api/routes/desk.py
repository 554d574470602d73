"""What the routes of one process share: submissions that are gathered, streams, metrics. Made at the first request."""

from asyncio import Semaphore
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import BoundedSemaphore, Lock
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from herdsman.api.context import ApiContext
from herdsman.api.routes.bus_look import BusLook
from herdsman.api.routes.look import Look
from herdsman.api.routes.ready import Readiness
from herdsman.api.streams import Streams
from herdsman.control.commands import submit_job, submit_jobs
from herdsman.control.commands.submit import submit_each
from herdsman.control.gather import Gatherer
from herdsman.control.lease_line import LeaseLine, open_lease_line
from herdsman.control.services import Services
from herdsman.core.errors import Conflict, HerdsmanError, InvalidRequest, TooMany
from herdsman.core.model import NewJob, PoolId, Submitted, WorkerId
from herdsman.store import workers
from herdsman.telemetry.metrics import Metrics

MOST_POOLS = 20_000
MOST_FORWARDED = 8
MOST_PARSING = 2


@dataclass(frozen=True, slots=True)
class Desk:
    services: Services
    submits: Gatherer[NewJob, Submitted]
    streams: Streams
    metrics: Metrics
    readiness: Readiness
    leases: LeaseLine
    cycling: Lock = field(default_factory=Lock)
    """A cycle that was asked for waits for another one."""
    forwarding: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(MOST_FORWARDED))
    """Who waits for the leader of another replica holds a thread here."""
    parsing: Semaphore = field(default_factory=lambda: Semaphore(MOST_PARSING))
    """Threads that take large bodies apart."""
    _pools: OrderedDict[WorkerId, PoolId] = field(default_factory=OrderedDict[WorkerId, PoolId])

    async def pool_of(self, worker_id: WorkerId) -> PoolId:
        """It never changes, so it is asked for once. `NotFound` tells a worker that it is not wanted (W2)."""
        if worker_id not in self._pools:
            found = await run_in_threadpool(
                self.services.database.read, lambda tx: workers.get(tx, worker_id).pool
            )
            self._pools[worker_id] = found
            while len(self._pools) > MOST_POOLS:
                self._pools.popitem(last=False)
        return self._pools[worker_id]


def submit_together(services: Services, news: Sequence[NewJob]) -> list[Submitted | Exception]:
    """In one transaction. When one of them spoils it, each for itself: nobody is refused for another's job."""
    try:
        return [*submit_each(services, news)]
    except (InvalidRequest, Conflict) as error:
        if len(news) == 1:
            return [error]
    return [_submit_alone(services, new) for new in news]


def submit_batch(desk: Desk, news: Sequence[NewJob]) -> list[Submitted]:
    """All of them or none."""
    try:
        done = submit_jobs(desk.services, news)
    except TooMany as error:
        _count(desk.metrics, [error] * len(news))
        raise
    _count(desk.metrics, done)
    return done


def _submit_alone(services: Services, new: NewJob) -> Submitted | Exception:
    try:
        return submit_job(services, new)
    except HerdsmanError as error:
        return error


def _count(metrics: Metrics, answers: Sequence[Submitted | Exception]) -> None:
    """What was sent before, or could never be taken in, is no decision."""
    for (decision, code), times in Counter(filter(None, map(_decision, answers))).items():
        metrics.admission.labels(decision, code).inc(times)


def _decision(answer: Submitted | Exception) -> tuple[str, str] | None:
    match answer:
        case Submitted(created=True):
            kind = (
                "accepted" if answer.admission is None else "deferred" if answer.pool is None else "rerouted"
            )
            return kind, answer.admission or ""
        case TooMany(code=str(code)):
            return "rejected", code
        case _:
            return None


def open_desk(context: ApiContext) -> Desk:
    services, metrics = context.services, Metrics()
    metrics.add(Look(services, context.control))
    if context.bus is not None:
        metrics.add(BusLook(context.bus))
    streams = Streams(services, context.stopping, context.limits)
    metrics.waiting.set_function(lambda: context.dispatcher.waiting)
    metrics.streams.set_function(lambda: streams.count)
    context.dispatcher.on_round = metrics.dispatched

    def submit(news: Sequence[NewJob]) -> list[Submitted | Exception]:
        answers = submit_together(services, news)
        _count(metrics, answers)
        return answers

    submits = Gatherer[NewJob, Submitted](submit, name="submit")
    leases = open_lease_line(services, context.stopping, metrics.leased)
    loop_faults = dict[str, str] if context.control is None else context.control.loops.faults
    readiness = Readiness(services.database, context.stopping, loop_faults)
    return Desk(services, submits, streams, metrics, readiness, leases)


def desk_of(request: Request) -> Desk:
    """To be called on the event loop, where no two calls meet."""
    state: Any = request.app.state
    if not hasattr(state, "desk"):
        state.desk = open_desk(state.context)
    return state.desk


async def _desk(request: Request) -> Desk:  # async, so that it runs on the event loop
    return desk_of(request)


AtDesk = Annotated[Desk, Depends(_desk)]
