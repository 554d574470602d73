"""A whole herd in one process, for the tests of your own programs: the real rules, and no time to wait for."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Self

import httpx

from herdsman.client import AsyncClient, Client
from herdsman.ids import WorkerId
from herdsman.jobs.model import Claim, JobPolicy
from herdsman.jobs.protocol import ClaimRequest
from herdsman.testing.local_desk import Desk
from herdsman.testing.local_door import Door
from herdsman.testing.local_ledger import Ledger
from herdsman.testing.local_running import Handler, run_claims
from herdsman.testing.memory_jobs import WAITING, MemoryJobs
from herdsman.testing.queue import MemoryQueue

URL = "http://local.herd"
MOST_RUNS = 100_000
MOST_IDLE = 1_000
DEEPEST = 20


class LocalHerd:
    """Jobs run in the thread that asks: with `run_all`, with `advance`, or while a client waits for a result.

    Time stands still but for `advance` and the pauses of a waiting client, so an hour of retries takes no time.
    What needs a process of its own is not there: a handler that runs too long is not stopped.
    """

    def __init__(self, *, policy: JobPolicy | None = None, agent: str | None = None) -> None:
        self._now = 0.0
        self._idle = 0
        self._depth = 0
        self._handlers: dict[str, tuple[Handler, int]] = {}
        self._jobs = MemoryJobs(self, policy)
        self._desk = Desk(self._jobs, Ledger())
        door = httpx.MockTransport(Door(self._desk))
        self.client = Client(URL, clock=self, transport=door, agent=agent)
        self.async_client = AsyncClient(URL, clock=self, transport=door, agent=agent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def handle(self, type: str, handler: Handler, *, batch: int = 1) -> None:  # noqa: A002
        """Jobs of this type are run by `handler`, as by a worker; with `batch` it gets a list of up to so many."""
        self._handlers[type] = handler, batch

    def run_all(self) -> int:
        """Run what is due until nothing is; how many attempts there were. Retries wait for `advance`."""
        runs = 0
        while done := self.run_next():
            runs += done
            if runs > MOST_RUNS:
                raise RuntimeError(
                    f"more than {MOST_RUNS:,} jobs ran and there are more: does a job submit itself?"
                )
        return runs

    def run_next(self) -> int:
        """Run the next job, or the next batch; how many jobs it was."""
        if not self._handlers or self._depth >= DEEPEST:
            return 0
        # A handler may wait for a job of its own: another worker of the herd runs that one.
        queue = MemoryQueue(self._jobs, WorkerId(f"local-{self._depth + 1}"))
        most = {name: batch for name, (_, batch) in self._handlers.items() if batch > 1}
        claims = queue.claim(ClaimRequest(types=tuple(self._handlers), most=most))
        if claims:
            self._idle = 0
            self._run(queue, claims)
        return len(claims)

    def advance(self, seconds: float) -> int:
        """Let time pass, then run what has become due; how many attempts there were."""
        self._now += seconds
        return self.run_all()

    def monotonic(self) -> float:
        return self._now

    def sleep(self, duration: timedelta) -> None:
        """What a waiting client does: the herd works meanwhile, and time goes on."""
        if not self.run_all():
            self._check_hope()
        self._now += duration.total_seconds()

    def _run(self, queue: MemoryQueue, claims: Sequence[Claim]) -> None:
        handler, batch = self._handlers[claims[0].type]
        self._note(claims)
        queue.start([claim.key for claim in claims])
        self._note(claims)
        self._depth += 1
        try:
            run_claims(queue, claims, handler, batch=batch)
        finally:
            self._depth -= 1
            self._note(claims)

    def _check_hope(self) -> None:
        """Where nothing can happen any more, waiting without a timeout would hang a test."""
        self._idle += 1
        waiting = [job for job in self._jobs.all() if job.state in WAITING and job.new.type in self._handlers]
        if self._idle > MOST_IDLE and not waiting:
            known = ", ".join(sorted(self._handlers)) or "nothing"
            raise RuntimeError(
                f"a client waits, and no job is left that could run: there are handlers for {known}"
            )

    def _note(self, claims: Sequence[Claim]) -> None:
        self._desk.note(*(self._jobs.job(claim.key.job_id) for claim in claims))
