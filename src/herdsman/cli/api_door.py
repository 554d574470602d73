"""Jobs over HTTP."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from herdsman.cli.api_herd import ApiHerd
from herdsman.cli.api_leases import ApiLeases
from herdsman.cli.api_looks import ApiLooks
from herdsman.cli.api_pools import ApiPools
from herdsman.cli.lease_door import LeaseDoor
from herdsman.cli.pool_door import PoolDoor
from herdsman.cli.server import Server
from herdsman.client import calls
from herdsman.client.call import Call
from herdsman.client.operation import run
from herdsman.client.transport import BlockingConnection, Patience, Transport
from herdsman.core.model import JobFilter
from herdsman.ports import Clock
from herdsman.wire.fleet import CycleOut
from herdsman.wire.jobs import (
    AttemptsOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobsOut,
    LogsOut,
    ResultOut,
    RetryIn,
    SubmittedOut,
)
from herdsman.wire.limits import (
    DrainIn,
    EditionOut,
    HistoryOut,
    HoldOut,
    HoldsOut,
    PauseIn,
    PolicyIn,
    PolicyOut,
    ResumedOut,
    ScopeIn,
)
from herdsman.wire.pools import PoolOut

T = TypeVar("T")

TIMEOUT = timedelta(seconds=30)


class ApiDoor(ApiLooks, ApiHerd):
    def __init__(
        self,
        url: str,
        token: str | None,
        clock: Clock,
        patience: timedelta,
        *,
        token_from: str = "",
    ) -> None:
        self._clock = clock
        self._server = Server(url, token_from=None if token is None else token_from or "the caller")
        self._transport = Transport(
            BlockingConnection(clock),
            url=url,
            token=token,
            timeout=TIMEOUT,
            patience=Patience(most=patience),
            on_version=self._server.met,
        )

    def alive(self) -> None:
        self._ask(calls.health())

    def submit(self, jobs: Sequence[JobIn]) -> Sequence[SubmittedOut]:
        if len(jobs) == 1:
            return [self._ask(calls.submit(jobs[0]))]
        return self._ask(calls.submit_many(jobs)).jobs

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut:
        return self._ask(
            calls.jobs(
                statuses=wanted.states,
                kind=wanted.type,
                agent=wanted.agent,
                pool=wanted.pool,
                tag=wanted.tag,
                failure_class=wanted.failure_class,
                begins=wanted.begins,
                after=after,
                limit=limit,
            )
        )

    def look(self, job_id: str) -> JobDetail:
        seen = self._ask(calls.look(job_id))
        assert seen is not None, "no mark was sent, so nothing can be unchanged"
        return seen.job

    def attempts(self, job_id: str) -> AttemptsOut:
        return self._ask(calls.attempts(job_id))

    def history(self, job_id: str) -> EventsOut:
        return self._ask(calls.history(job_id, None))

    def result(self, job_id: str) -> ResultOut | None:
        return self._ask(calls.result(job_id))

    def logs(self, job_id: str, since: str | None) -> LogsOut:
        return self._ask(calls.logs(job_id, since))

    def cancel(self, job_id: str) -> str:
        return self._ask(calls.cancel(job_id)).status

    def retry(self, job_id: str, wanted: RetryIn) -> None:
        self._ask(calls.retry(job_id, wanted))

    def hold(self, wanted: PauseIn) -> HoldOut:
        return self._ask(calls.pause(wanted))

    def resume(self, wanted: ScopeIn) -> ResumedOut:
        return self._ask(calls.resume(wanted))

    def drain(self, wanted: DrainIn) -> HoldOut:
        return self._ask(calls.drain(wanted))

    def holds(self) -> HoldsOut:
        return self._ask(calls.holds())

    def evict(self, pool: str) -> PoolOut:
        return self._ask(calls.evict_pool(pool))

    @property
    def pools(self) -> PoolDoor:
        return ApiPools(self._ask)

    @property
    def leases(self) -> LeaseDoor:
        return ApiLeases(self._ask)

    def reconcile(self) -> CycleOut:
        return self._ask(calls.reconcile())

    def policy(self, version: int | None) -> PolicyOut:
        return self._ask(calls.policy(version))

    def set_policy(self, wanted: PolicyIn) -> EditionOut:
        return self._ask(calls.set_policy(wanted))

    def policy_history(self, after: int | None, limit: int) -> HistoryOut:
        return self._ask(calls.policy_history(after, limit))

    def pause(self, duration: timedelta) -> None:
        self._clock.sleep(duration)

    def close(self) -> None:
        run(self._transport.close())

    def _ask(self, call: Call[T]) -> T:
        with self._server.explained():
            return run(self._transport.send(call))
