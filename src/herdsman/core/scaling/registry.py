"""The scaling policies that come with us, and how one is chosen by its name."""

from collections.abc import Mapping

from herdsman.core.errors import InvalidSettings
from herdsman.core.scaling.adaptive import adaptive
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.core.scaling.threshold import threshold
from herdsman.core.scaling.workload import workload

OURS: Mapping[str, ScalingPolicy] = {"threshold": threshold, "workload": workload, "adaptive": adaptive}

FORECASTING = frozenset({"adaptive"})
"""Those that ask for a pool's demand, and may change their mind though nothing happened."""


def chosen(name: str, installed: Mapping[str, ScalingPolicy]) -> ScalingPolicy:
    if name not in installed:
        there = ", ".join(sorted(installed))
        raise InvalidSettings(f"SCALING_POLICY is {name!r}, which is not installed; there are: {there}")
    return installed[name]
