"""A waiting job, and the workers that could take it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from herdsman.control.services import Services
from herdsman.control.snapshot import look_without_provider
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot
from herdsman.core.model import Job
from herdsman.core.states import WorkerState
from herdsman.db.connection import Tx
from herdsman.store import jobs, worker_types

SILENT = timedelta(minutes=1)
"""A worker that has not beaten for so long does not ask for work either."""


@dataclass(frozen=True, kw_only=True)
class Around:
    tx: Tx
    services: Services
    job: Job

    @cached_property
    def seen(self) -> Snapshot:
        return look_without_provider(self.tx, self.services.fleet())

    @cached_property
    def pool(self) -> SeenPool | None:
        """None where the control loop keeps no such pool."""
        return next((each for each in self.seen.pools if each.id == self.job.pool), None)

    @cached_property
    def active(self) -> Sequence[SeenWorker]:
        return tuple(self.seen.of(self.job.pool, WorkerState.ACTIVE))

    @cached_property
    def starting(self) -> Sequence[SeenWorker]:
        return tuple(self.seen.of(self.job.pool, WorkerState.SPAWNING))

    @cached_property
    def named_types(self) -> dict[str, frozenset[str]]:
        """Of all pools; a worker that is not in it may take anything."""
        return dict(worker_types.of_living(self.tx))

    @cached_property
    def unfit(self) -> dict[str, str]:
        """By worker, of all pools, why it takes no jobs of this type at the moment."""
        told = worker_types.unfit_of_living(self.tx)
        return {worker: said[self.job.type] for worker, said in told.items() if self.job.type in said}

    def takes(self, worker: SeenWorker) -> bool:
        named = self.named_types.get(worker.id)
        return (named is None or self.job.type in named) and worker.id not in self.unfit

    @cached_property
    def able(self) -> Sequence[SeenWorker]:
        """The active ones that take its type."""
        return tuple(each for each in self.active if self.takes(each))

    @cached_property
    def free(self) -> Sequence[SeenWorker]:
        return tuple(each for each in self.able if each.job is None)

    @cached_property
    def asking(self) -> Sequence[SeenWorker]:
        """Those of the free ones that were heard of lately."""
        return tuple(each for each in self.free if not self._silent(each))

    @cached_property
    def ahead(self) -> int:
        return jobs.ahead_of(self.tx, self.job.job_id)

    def _silent(self, worker: SeenWorker) -> bool:
        return worker.last_heartbeat is not None and self.tx.now() - worker.last_heartbeat > SILENT
