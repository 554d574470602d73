"""The scaling policies that come with us, and how one is chosen by its name."""

from collections.abc import Mapping

from herdsman.errors import InvalidSettings
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling.adaptive import adaptive
from herdsman.fleet.scaling.observation import ScalingPolicy
from herdsman.fleet.scaling.simple import threshold, workload

OURS: Mapping[str, ScalingPolicy] = {"threshold": threshold, "workload": workload, "adaptive": adaptive}
FORECASTING = frozenset({"adaptive"})
"""Those that ask for a pool's demand, and may change their mind though nothing happened."""


def forecasts(policy: FleetPolicy) -> bool:
    """Whether a pool's demand has to be counted: for the policy that decides, or for the one that is only asked."""
    return not FORECASTING.isdisjoint((policy.scaling, policy.shadow))


def require_installed(policy: FleetPolicy, installed: Mapping[str, ScalingPolicy]) -> None:
    """Raises `InvalidSettings` for a name that nobody has."""
    chosen(policy.scaling, installed)
    if policy.shadow:
        chosen(policy.shadow, installed, "SHADOW_SCALING_POLICY")


def chosen(
    name: str, installed: Mapping[str, ScalingPolicy], setting: str = "SCALING_POLICY"
) -> ScalingPolicy:
    if name not in installed:
        there = ", ".join(sorted(installed))
        raise InvalidSettings(f"{setting} is {name!r}, which is not installed; there are: {there}")
    return installed[name]
