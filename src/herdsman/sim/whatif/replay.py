"""A trace from its first arrival to its last end, under one way of keeping the fleet."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

from herdsman.core.errors import InvalidRequest
from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.core.scaling.registry import OURS
from herdsman.sim.whatif.boots import Boots
from herdsman.sim.whatif.deciding import Deciding
from herdsman.sim.whatif.outcome import Outcome, outcome_of
from herdsman.sim.whatif.trace import Trace
from herdsman.sim.whatif.world import World

PATIENCE_S = 7 * 86_400.0
"""So long after the last arrival, and twice what the work takes at best, a replay is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is replayed beside the trace."""

    policy: FleetPolicy
    boots: Boots = field(default_factory=Boots)
    poll_s: float = 30.0
    price: float = 0.0
    seed: int = 0
    policies: Mapping[str, ScalingPolicy] = field(default_factory=lambda: OURS)


class Helm(Protocol):
    """Whoever keeps the fleet."""

    cap_hits: int

    def cycle(self) -> object: ...

    @property
    def quiet(self) -> bool:
        """Nothing will change until a job comes."""
        ...


def replay(trace: Trace, setup: Setup, name: str = "") -> Outcome:
    if setup.policy.max_workers == 0:
        raise InvalidRequest("MAX_ACTIVE_GPUS is 0: nobody would ever run a job; set it to at least 1")

    def helm(world: World) -> Helm:
        rules = replace(setup.policy, look_every=timedelta(seconds=setup.poll_s))
        return Deciding(world, rules, price=setup.price, policies=setup.policies)

    return steered(trace, setup, helm, name or setup.policy.scaling)


def steered(trace: Trace, setup: Setup, helm: Callable[[World], Helm], name: str) -> Outcome:
    """Under anybody's hand: what others do is replayed here as well."""
    world = World(trace, setup.boots, seed=setup.seed)
    pilot, cycles, poll = helm(world), 0, setup.poll_s
    most = setup.policy.max_workers
    give_up = trace.arrival_s[-1] + 2 * trace.work_s / max(1, most) + PATIENCE_S
    look_at = 0.0
    while not world.over and look_at <= give_up:
        world.advance(look_at)
        if world.over:
            break
        pilot.cycle()
        cycles += 1
        look_at += poll
        if pilot.quiet and world.next_arrival > look_at:
            # Looks are at whole multiples of the interval, wherever the quiet ends.
            look_at = math.ceil(min(world.next_arrival, give_up + poll) / poll) * poll
    target = setup.policy.target_wait.total_seconds()
    return outcome_of(world, name, price=setup.price, target_s=target, cap_hits=pilot.cap_hits, cycles=cycles)
