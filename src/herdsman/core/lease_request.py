"""What somebody asks for who wants a lease, and who of those that wait is served before whom."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from herdsman.core.errors import InvalidRequest
from herdsman.core.leasing import LeasePolicy, Wish
from herdsman.core.request import LARGEST_MEMORY_MB, check_name

SHORTEST_TTL = timedelta(seconds=1)
LONGEST_WAIT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """What somebody asks for."""

    agent: str
    wish: Wish
    ttl: timedelta
    allow_cpu: bool = False
    token: str | None = None
    """Chosen by the caller, so that the same words may be sent twice."""
    metadata: dict[str, object] = field(default_factory=dict[str, object])


def check_request(asked: LeaseRequest) -> None:
    """Every refusal names the field, the value and the rule."""
    check_name("agent", asked.agent)
    if not 1 <= asked.wish.memory_mb <= LARGEST_MEMORY_MB:
        raise InvalidRequest(
            f"min_memory_mb is {shown(asked.wish.memory_mb)}: it must be from 1 to {LARGEST_MEMORY_MB}"
        )
    if asked.wish.node is not None:
        check_name("node", asked.wish.node)
    if asked.wish.gpu_index is not None and not 0 <= asked.wish.gpu_index < 2**31:
        raise InvalidRequest(f"gpu_index is {shown(asked.wish.gpu_index)}: it must be 0 or more")
    if asked.token is not None:
        check_name("token", asked.token)
        if len(asked.token) < 16:
            raise InvalidRequest(f"token has {len(asked.token)} characters: it must have from 16 to 64")


def check_ttl(seconds: float | None, policy: LeasePolicy) -> timedelta:
    if seconds is None:
        return policy.ttl
    shortest, longest = SHORTEST_TTL.total_seconds(), policy.longest_ttl.total_seconds()
    if not shortest <= seconds <= longest:
        raise InvalidRequest(
            f"ttl_seconds is {shown(seconds)}: it must be from {shortest:g} to {longest:g}"
            " (GPU_ORCHESTRATOR_LEASE_TTL)"
        )
    return timedelta(seconds=seconds)


def check_wait(seconds: float) -> timedelta:
    longest = LONGEST_WAIT.total_seconds()
    if not 0 <= seconds <= longest:
        raise InvalidRequest(f"wait_seconds is {shown(seconds)}: it must be from 0 to {longest:g}")
    return timedelta(seconds=seconds)


def shown(number: float) -> str:
    """A number that somebody sent; a huge one is cut short."""
    try:
        return str(number)[:40]
    except ValueError:  # an integer with thousands of digits
        return "a number with thousands of digits"


OVERTAKEN = timedelta(seconds=10)
"""So long a request that does not fit may be overtaken by smaller ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One that waits, as those behind it see it."""

    wish: Wish
    agent: str
    since: float
    """By a clock that only rises, in seconds."""
    could_hold: frozenset[str] = frozenset()


def barred_by(before: Iterable[Waiting], now: float) -> frozenset[str]:
    """The GPUs on which nobody behind these is served: one of them has been overtaken for long enough."""
    patient = [each for each in before if now - each.since >= OVERTAKEN.total_seconds()]
    return frozenset(uuid for each in patient for uuid in each.could_hold)


def as_hopeless(wish: Wish, refused: Wish) -> bool:
    """Whether a wish is at least as hard to grant as one that was refused a moment ago."""
    same = wish.node == refused.node and wish.gpu_index == refused.gpu_index
    return same and wish.memory_mb >= refused.memory_mb and (wish.exclusive or not refused.exclusive)
