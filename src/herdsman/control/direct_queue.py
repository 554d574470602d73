"""The work queue of a worker that may speak to the database itself: one on the control plane's own machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from herdsman.control import commands
from herdsman.control.services import Services
from herdsman.core.errors import Conflict, NotFound, StaleWrite
from herdsman.core.gpu import GpuReport
from herdsman.core.model import Beat, Claim, ClaimKey, Failure, PoolId, WorkerId
from herdsman.core.reasons import Reason
from herdsman.core.states import JobState, WorkerState
from herdsman.store import workers


@dataclass(frozen=True, slots=True)
class DirectQueue:
    services: Services
    worker_id: WorkerId

    def enlist(self, pool: PoolId) -> bool:
        """True when the worker had no row and got one in `pool`: it was started by hand."""
        try:
            self.services.database.read(lambda tx: workers.get(tx, self.worker_id))
        except NotFound:
            try:
                commands.register_worker(self.services, self.worker_id, pool=pool)
            except Conflict:  # another one of this name was quicker; it is the same row
                return False
            return True
        return False

    def claim(self, types: Sequence[str]) -> Claim | None:
        return commands.claim_job(self.services, self.worker_id, types)

    def start(self, key: ClaimKey) -> None:
        commands.start_job(self.services, key, who=self._who)

    def beat(self, key: ClaimKey | None, report: GpuReport | None = None) -> Beat:
        return commands.beat(self.services, self.worker_id, key, report)

    def progress(self, key: ClaimKey, done: float, note: str | None = None) -> None:
        commands.report_progress(self.services, key, done, note)

    def complete(self, key: ClaimKey, result: object) -> JobState:
        return JobState(commands.complete_job(self.services, key, result, who=self._who).value)

    def fail(self, key: ClaimKey, failure: Failure) -> JobState:
        return commands.fail_job(self.services, key, failure, who=self._who)

    def release(self, key: ClaimKey, why: str) -> JobState:
        return commands.release_job(self.services, key, why, who=self._who)

    def leave(self) -> None:
        """An active worker drains. In any other state the control loop knows, or will see the silence."""
        try:
            commands.move_worker(
                self.services, self.worker_id, WorkerState.TERMINATING, Reason.DRAINED, who=self._who
            )
        except (StaleWrite, NotFound):
            return

    @property
    def _who(self) -> str:
        return f"worker:{self.worker_id}"
