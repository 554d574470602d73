"""What is replayed beside a trace: settings, starts, and the policies that are there."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL, PoolId
from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.core.scaling.registry import OURS, chosen
from herdsman.settings import load_settings
from herdsman.settings.options import fleet_policy
from herdsman.whatif.machines import Boots
from herdsman.whatif.replay import Setup
from herdsman.whatif.sweep import labelled

BOOT_S = 90.0
"""Where nobody has given one, and none was ever timed."""
MOST = 1e9


@dataclass(frozen=True, slots=True)
class Asked:
    pool: PoolId
    fixed: Mapping[str, str]
    boots: Boots
    price: float
    seed: int
    installed: Mapping[str, ScalingPolicy]

    def setup(self, policy: str | None, swept: Mapping[str, str]) -> Setup:
        rules, poll_s = ruled(self.pool, self.installed, {**self.fixed, **swept}, policy)
        return Setup(
            policy=rules,
            boots=self.boots,
            poll_s=poll_s,
            price=self.price,
            seed=self.seed,
            policies=self.installed,
        )


def ruled(
    pool: PoolId, installed: Mapping[str, ScalingPolicy], fixed: Mapping[str, str], policy: str | None
) -> tuple[FleetPolicy, float]:
    """The settings of here with what was given: the rules of a pool, and the seconds between two cycles."""
    if policy is not None:
        chosen(policy, installed)
    asked = {**fixed, **({} if policy is None else {"SCALING_POLICY": policy})}
    # That spelling wins over every other, and one that names no setting is refused.
    settings = load_settings(given={f"HERDSMAN_{_bare(name)}": value for name, value in asked.items()})
    rules = fleet_policy(settings if pool == DEFAULT_POOL else settings.by_pool.get(pool, settings))
    chosen(rules.scaling, installed)
    return rules, settings.health.orchestrator_poll_sec


def setups(
    asked: Asked, policy: str | None, others: Sequence[str], swept: Sequence[Mapping[str, str]]
) -> dict[str, Setup]:
    """All are made before the first is replayed: a typing error should not cost minutes."""
    made: dict[str, Setup] = {}
    for name in (policy, *others):
        for each in swept:
            setup = asked.setup(name, each)
            made[labelled(setup.policy.scaling, each)] = setup
    return made


def boots_of(fitted: Boots | None, mean: float | None, spread: float, failing: float | None) -> Boots:
    """What was given counts; the rest is taken from the history."""
    fails = failing if failing is not None else (0.0 if fitted is None else fitted.failing)
    if mean is None and fitted is not None:
        return Boots(sample_s=fitted.sample_s, failing=fails)
    return Boots(mean_s=BOOT_S if mean is None else mean, spread_s=spread, failing=fails)


def installed_here() -> Mapping[str, ScalingPolicy]:
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}


def require_numbers(**given: float | None) -> None:
    """`nan` and `inf` are numbers to a command line, and pass every limit."""
    for name, value in given.items():
        if value is not None and not (math.isfinite(value) and abs(value) <= MOST):
            option = f"--{name.replace('_', '-')}"
            raise InvalidRequest(f"{option} is {value}: give a number up to {MOST:,.0f}")


def _bare(name: str) -> str:
    return name.upper().removeprefix("HERDSMAN_")
