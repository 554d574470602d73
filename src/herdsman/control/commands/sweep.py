"""What happens by itself. Each pass goes through everything, in small transactions; two may run at once."""

from collections.abc import Callable
from datetime import timedelta

import structlog

from herdsman.control.commands.leases import expire_leases, prune_leases
from herdsman.control.commands.tokens import prune_tokens
from herdsman.control.services import Services
from herdsman.core.ending import end_of, overdue_failure
from herdsman.core.errors import HerdsmanError
from herdsman.core.states import JOB, JobState
from herdsman.db.connection import Tx
from herdsman.store import claims, leader, logs, upkeep

log = structlog.get_logger()

SWEEPER = "leader"
_MOST_BATCHES = 1000
"""A pass that finds more than this leaves the rest to the next one."""


def expire_claims(services: Services) -> int:
    """Take jobs back from workers that fell silent (J4), or that let a job run on when it should have ended.

    None is taken back while heartbeats cannot be written, nor for the time of a claim afterwards (P10).
    """
    return _drain(lambda: services.database.transact(lambda tx: _expire(tx, services)))


def stage_due_jobs(services: Services) -> int:
    """Queue the jobs whose `run_at` has come: delayed ones, and failed ones that are to be tried again."""
    waiting = [
        state for state in JOB.sources(JobState.PENDING) if state in (JobState.SCHEDULED, JobState.FAILED)
    ]
    return sum(
        _drain(lambda state=state: services.database.transact(lambda tx: upkeep.stage(tx, state)))
        for state in waiting
    )


def end_overdue_leases(services: Services) -> int:
    """Mark the leases whose holders sent no heartbeat in time (S2-60)."""
    return _drain(lambda: expire_leases(services))


def prune(services: Services) -> int:
    """Remove what is older than its retention: ended jobs and leases with their records, audit, cycles, tokens and
    what replicas said."""
    policy, database = services.policy, services.database
    removed = _drain(lambda: prune_tokens(services)) + _drain(
        lambda: database.transact(lambda tx: upkeep.prune_cycles(tx, tx.now() - upkeep.CYCLES_KEPT))
    )
    removed += _drain(lambda: database.transact(lambda tx: logs.prune_lines(tx, tx.now() - logs.LINES_KEPT)))
    if (keep := policy.job_retention) is not None:
        removed += _drain(lambda: _prune_jobs(services, keep))
        removed += _drain(lambda: prune_leases(services, keep))
    if (audited := policy.audit_retention) is not None:
        removed += _drain(lambda: database.transact(lambda tx: upkeep.prune_audit(tx, tx.now() - audited)))
    return removed


def _prune_jobs(services: Services, keep: timedelta) -> int:
    """Their files go after them: one that is left over harms nobody, one that is missing would."""
    gone = services.database.transact(lambda tx: upkeep.prune_jobs(tx, tx.now() - keep))
    for job_id in gone:
        try:
            services.drop_files(job_id)
        except HerdsmanError as error:
            log.warning("results.left_over", job_id=job_id, reason=str(error))
    return len(gone)


def _drain(batch: Callable[[], int]) -> int:
    total = 0
    for _ in range(_MOST_BATCHES):
        done = batch()
        total += done
        if done == 0:
            break
    return total


def _patience(services: Services) -> timedelta:
    """A worker stops a job by itself at its deadline, or when told; only one that does not is overruled."""
    return services.policy.cancel_grace + services.policy.claim_ttl


def _expire(tx: Tx, services: Services) -> int:
    term, ttl = leader.find(tx), services.policy.claim_ttl
    if term is not None and not term.judges_claims(tx.now(), ttl):
        return 0
    excused_before = None if term is None or term.beats_since is None else term.beats_since + ttl
    found = claims.overdue(tx, _patience(services), upkeep.BATCH)
    for held in found:
        failure = overdue_failure(held, tx.now(), excused_before=excused_before)
        ending = end_of(held, failure, tx.now(), services.policy)
        claims.end(tx, held.key, SWEEPER, ending)
    return len(found)
