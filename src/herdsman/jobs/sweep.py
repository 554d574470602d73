"""What happens by itself. Each pass goes through everything, in small transactions; two may run at once."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta

import structlog

from herdsman.access.commands import prune_tokens
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import HerdsmanError, StoreUnavailable
from herdsman.fleet import leader_sql
from herdsman.ids import WorkerId
from herdsman.jobs import attempts_sql, running_sql, sql
from herdsman.jobs.rules import Holding, behind_the_first, end_of, not_begun, overdue_failure
from herdsman.leases import sql as leases_sql
from herdsman.limits.commands import count_gpu_seconds
from herdsman.loops.periodic import PeriodicLoop
from herdsman.ports import Clock, Threads
from herdsman.states import JOB, JobStatus

log = structlog.get_logger()
SWEEPER = "leader"
_MOST_BATCHES = 1000
"""A pass that finds more than this leaves the rest to the next one."""


def expire_claims(services: Services) -> int:
    """Take jobs back from workers that fell silent (J4), or that let a job run on when it should have ended.

    None is taken back while heartbeats cannot be written, nor for the time of a claim afterwards (P10).
    """

    def expire(tx: Tx) -> int:
        term, ttl = leader_sql.find_leader(tx), services.policy.claim_ttl
        if term is not None and not term.judges_claims(tx.now(), ttl):
            return 0
        excused_before = None if term is None or term.beats_since is None else term.beats_since + ttl
        # A worker stops a job by itself at its deadline, or when told; only one that does not is overruled.
        found = running_sql.overdue(tx, services.policy.cancel_grace + ttl, sql.BATCH)
        silent = {held.worker_id for held in found if held.claim_expires_at < tx.now()}
        unbegun = {each.job_id: each for worker in silent if worker for each in _taken_ahead(tx, worker, found)}
        for held in {**{each.job_id: each for each in found}, **unbegun}.values():
            failure = overdue_failure(held, tx.now(), excused_before=excused_before)
            ahead = held.job_id in unbegun
            end = not_begun(held, failure) if ahead else end_of(held, failure, tx.now(), services.policy)
            running_sql.end(tx, end, SWEEPER)
        return len(found)

    return _drain_all(services, expire)


def _taken_ahead(tx: Tx, worker: WorkerId, expired: Sequence[Holding]) -> list[Holding]:
    """Of a silent worker, the claims that it cannot have begun: all of them as soon as the one that it was at runs out."""
    held = running_sql.held_by(tx, worker)
    behind, lost = behind_the_first(held), {each.job_id for each in expired}
    front = {each.job_id for each in held}.difference(each.job_id for each in behind)
    return behind if front & lost else [each for each in behind if each.job_id in lost]


def stage_due_jobs(services: Services) -> int:
    """Queue the jobs whose `run_at` has come: delayed ones, and failed ones that are to be tried again."""
    waiting = [state for state in JOB.sources(JobStatus.PENDING) if state in (JobStatus.SCHEDULED, JobStatus.FAILED)]
    return sum(_drain_all(services, lambda tx, state=state: sql.stage_due(tx, state)) for state in waiting)


def end_overdue_leases(services: Services) -> int:
    """Mark the leases whose holders sent no heartbeat in time."""
    return _drain_all(services, lambda tx: leases_sql.expire_leases(tx, SWEEPER))


def prune(services: Services) -> int:
    """Remove what is older than its retention: ended jobs and leases with their records, audit, cycles, tokens and
    what replicas said."""
    removed = _drain(lambda: prune_tokens(services))
    removed += _drain_all(services, lambda tx: sql.prune_cycles(tx, tx.now() - sql.CYCLES_KEPT))
    removed += _drain_all(services, lambda tx: attempts_sql.prune_lines(tx, tx.now() - attempts_sql.LINES_KEPT))
    if (keep := services.policy.job_retention) is not None:
        removed += _drain(lambda: _prune_jobs(services, keep))
        removed += _drain_all(services, lambda tx: leases_sql.prune_leases(tx, tx.now() - keep))
    if (audited := services.policy.audit_retention) is not None:
        removed += _drain_all(services, lambda tx: sql.prune_audit(tx, tx.now() - audited))
    return removed


def _prune_jobs(services: Services, keep: timedelta) -> int:
    """Their files go after them: one that is left over harms nobody, one that is missing would."""
    gone = services.database.transact(lambda tx: sql.prune_jobs(tx, tx.now() - keep))
    for job_id in gone:
        try:
            services.drop_files(job_id)
        except HerdsmanError as error:
            log.warning("results.left_over", job_id=job_id, reason=str(error))
    return len(gone)


def _drain_all(services: Services, batch: Callable[[Tx], int]) -> int:
    return _drain(lambda: services.database.transact(batch))


def _drain(batch: Callable[[], int]) -> int:
    total = 0
    for _ in range(_MOST_BATCHES):
        done = batch()
        total += done
        if done == 0:
            break
    return total


STAGING = timedelta(seconds=1)
PRUNING = timedelta(hours=1)
COUNTING = timedelta(seconds=10)
SHARE = 20
"""At most this fraction of the time is spent on counting what agents have used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How many jobs one pass moved."""

    queued: int = 0
    taken_back: int = 0
    removed: int = 0
    leases_ended: int = 0


@dataclass
class Sweeper:
    services: Services
    clock: Clock
    sweep_interval: timedelta
    on_queued: Callable[[], None] = lambda: None
    """Told when jobs were queued: somebody may be waiting for them."""
    staging: timedelta = STAGING
    """How often jobs are looked for whose time has come."""
    _last: dict[str, float] = field(default_factory=dict[str, float])

    def loop(self, threads: Threads | None = None) -> PeriodicLoop:
        """A database that is away is waited for: no sweep is lost, only late."""
        interval = self.staging.total_seconds()

        def turn() -> float:
            swept = self.pass_once()
            if swept.queued or swept.taken_back:
                self.on_queued()
            if swept != Swept():
                log.info("sweep.done", **asdict(swept))
            return interval

        return PeriodicLoop(
            "sweeper",
            turn,
            retry_on=(StoreUnavailable,),
            on_error=lambda error: log.warning("sweep.postponed", reason=str(error)),
            backoff=(interval, interval),
            clock=self.clock,
            threads=threads,
        )

    def pass_once(self) -> Swept:
        if self._due("usage", COUNTING):
            began = self.clock.monotonic()
            count_gpu_seconds(self.services)
            # A count that takes long is made less often.
            self._last["usage"] += SHARE * (self.clock.monotonic() - began)
        return Swept(
            queued=stage_due_jobs(self.services) if self._due("stage", self.staging) else 0,
            taken_back=expire_claims(self.services) if self._due("expire", self.sweep_interval) else 0,
            removed=prune(self.services) if self._due("prune", PRUNING) else 0,
            leases_ended=end_overdue_leases(self.services) if self._due("leases", self.staging) else 0,
        )

    def _due(self, what: str, interval: timedelta) -> bool:
        now = self.clock.monotonic()
        # A little early is on time: the loop's own rhythm must not make every second pass miss.
        due = what not in self._last or now - self._last[what] >= interval.total_seconds() - 0.05
        if due:
            self._last[what] = now
        return due
