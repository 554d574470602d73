"""What may never be found in a history, whoever made it: a simulation, a chaos test, or a fleet in production."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from herdsman.testing.simulation.checks import audit, claims, fleet_checks, job_checks, lease_checks, liveness
from herdsman.testing.simulation.checks.history import History

Check = Callable[[History], Iterator[str]]

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "lost": job_checks.lost,
        "completed_once": job_checks.completed_once,
        "executed_once": job_checks.executed_once,
        "ends_kept": job_checks.ends_kept,
        "checkpoints": job_checks.checkpoints,
        "rendered_once": job_checks.rendered_once,
        "tokens": claims.tokens,
        "cancelled": job_checks.cancelled,
        "retries": claims.retries,
        "audit": audit.audit,
        "leases": lease_checks.leases,
        "leader": fleet_checks.leader,
        "pods": fleet_checks.pods,
        "ownership": fleet_checks.ownership,
        "restored": fleet_checks.restored,
        "rescue": liveness.rescue,
        "outages": liveness.outages,
        "starvation": liveness.starvation,
        "conservation": job_checks.conservation,
        "quiescence": liveness.quiescence,
        "two_at_once": claims.two_at_once,
        "fenced": claims.fenced,
        "only_active": claims.only_active,
        "not_before": claims.not_before,
        "one_of_a_key": claims.one_of_a_key,
        "streams": liveness.streams,
    }
)


AFTER_A_RESTORE = ("restored", "quiescence")
"""A database that went back in time has forgotten jobs, claims and leases, so no other promise about them is kept."""


def violations(history: History) -> list[str]:
    """What every check finds, each sentence after the name of its check; empty for a good history."""
    names = AFTER_A_RESTORE if history.restores else CHECKS
    return [f"{name}: {said}" for name in names for said in CHECKS[name](history)]


__all__ = ["CHECKS", "violations"]
