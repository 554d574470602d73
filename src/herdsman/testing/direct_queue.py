"""The work queue of a worker that may speak to the database itself: one on the control plane's own machine."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from secrets import token_hex

from herdsman import __version__
from herdsman.context import Services
from herdsman.errors import Conflict, NotFound
from herdsman.fleet import commands as fleet_commands
from herdsman.fleet import workers_sql
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs import assign, worker_commands
from herdsman.jobs import commands as jobs_commands
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import ClaimRequest, Ending, FinishAndClaim, HeartbeatReply, ServiceMark, WorkerHeartbeat
from herdsman.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectQueue:
    services: Services
    worker_id: WorkerId
    clock: Clock
    poll: timedelta
    """How long to wait before looking for a job again."""
    incarnation: str = field(default_factory=lambda: token_hex(8))
    """Of this process: another one may bear the same name."""

    def enlist(self, pool: PoolId) -> bool:
        """True when the worker had no row and got one in `pool`: it was started manually."""
        database, new = self.services.database, False
        try:
            database.read(lambda tx: workers_sql.get_worker(tx, self.worker_id))
        except NotFound:
            with suppress(Conflict):  # another one of this name was quicker; it is the same row
                fleet_commands.register_worker(self.services, self.worker_id, pool=pool)
                new = True
        database.transact(lambda tx: workers_sql.note_version(tx, self.worker_id, __version__))
        return new

    def claim(self, ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        until = self.clock.monotonic() + wait.total_seconds()
        mine = replace(ask, incarnation=self.incarnation)
        while not (claims := assign.claim_for(self.services, {self.worker_id: mine})):
            left = until - self.clock.monotonic()
            if left <= 0:
                break
            self.clock.sleep(min(self.poll, timedelta(seconds=left)))
        return claims

    def held(self) -> Sequence[ClaimKey]:
        return assign.held_claims(self.services, self.worker_id, self.incarnation)

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        return worker_commands.start_jobs(
            self.services, keys, who=f"worker:{self.worker_id}", worker=self.worker_id, incarnation=self.incarnation
        )

    def beat(self, heartbeat: WorkerHeartbeat) -> HeartbeatReply:
        return worker_commands.record_heartbeat(self.services, self.worker_id, heartbeat)

    def finish(self, endings: Sequence[Ending], then: ClaimRequest | None = None) -> FinishAndClaim:
        mine = None if then is None else replace(then, incarnation=self.incarnation)
        return worker_commands.finish_jobs(self.services, self.worker_id, endings, mine)

    def get_checkpoint(self, key: ClaimKey) -> object:
        return jobs_commands.get_checkpoint(self.services, key, worker=self.worker_id)

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        jobs_commands.put_checkpoint(self.services, key, value, worker=self.worker_id)

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None:
        worker_commands.mark_service(self.services, key, mark, worker=self.worker_id)

    def leave(self) -> None:
        fleet_commands.leave(self.services, self.worker_id)
