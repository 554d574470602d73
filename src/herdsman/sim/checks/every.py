"""All checks by name."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from herdsman.sim.checks.audit import audit
from herdsman.sim.checks.claiming import not_before, one_of_a_key, only_active
from herdsman.sim.checks.completions import (
    checkpoints,
    completed_once,
    ends_kept,
    executed_once,
    rendered_once,
)
from herdsman.sim.checks.conservation import conservation
from herdsman.sim.checks.history import History
from herdsman.sim.checks.jobs import cancelled, lost
from herdsman.sim.checks.leader import leader
from herdsman.sim.checks.leases import leases
from herdsman.sim.checks.overlap import fenced, two_at_once
from herdsman.sim.checks.pods import pods
from herdsman.sim.checks.quiet import quiescence
from herdsman.sim.checks.retries import retries
from herdsman.sim.checks.streams import streams
from herdsman.sim.checks.tokens import tokens
from herdsman.sim.checks.waits import outages, rescue, starvation

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


def violations(history: History) -> list[str]:
    """What every check finds, each sentence after the name of its check; empty for a good history."""
    return [f"{name}: {said}" for name, check in CHECKS.items() for said in check(history)]
