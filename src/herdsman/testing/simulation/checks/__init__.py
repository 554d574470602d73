"""What may never be found in a history, whoever made it: a simulation, a chaos test, or a fleet in production."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from herdsman.testing.simulation.checks.audit import audit
from herdsman.testing.simulation.checks.claims import (
    fenced,
    not_before,
    one_of_a_key,
    only_active,
    retries,
    tokens,
    two_at_once,
)
from herdsman.testing.simulation.checks.fleet_checks import leader, ownership, pods, restored
from herdsman.testing.simulation.checks.history import History
from herdsman.testing.simulation.checks.job_checks import (
    cancelled,
    checkpoints,
    completed_once,
    conservation,
    ends_kept,
    executed_once,
    lost,
    rendered_once,
)
from herdsman.testing.simulation.checks.lease_checks import leases
from herdsman.testing.simulation.checks.liveness import outages, quiescence, rescue, starvation, streams

Check = Callable[[History], Iterator[str]]

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "lost": lost,
        "completed_once": completed_once,
        "executed_once": executed_once,
        "ends_kept": ends_kept,
        "checkpoints": checkpoints,
        "rendered_once": rendered_once,
        "tokens": tokens,
        "cancelled": cancelled,
        "retries": retries,
        "audit": audit,
        "leases": leases,
        "leader": leader,
        "pods": pods,
        "ownership": ownership,
        "restored": restored,
        "rescue": rescue,
        "outages": outages,
        "starvation": starvation,
        "conservation": conservation,
        "quiescence": quiescence,
        "two_at_once": two_at_once,
        "fenced": fenced,
        "only_active": only_active,
        "not_before": not_before,
        "one_of_a_key": one_of_a_key,
        "streams": streams,
    }
)


AFTER_A_RESTORE = ("restored", "quiescence")
"""A database that went back in time has forgotten jobs, claims and leases, so no other promise about them is kept."""


def violations(history: History) -> list[str]:
    """What every check finds, each sentence after the name of its check; empty for a good history."""
    names = AFTER_A_RESTORE if history.restores else CHECKS
    return [f"{name}: {said}" for name in names for said in CHECKS[name](history)]


__all__ = ["CHECKS", "violations"]
