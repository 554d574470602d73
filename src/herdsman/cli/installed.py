"""The scaling policies of this machine, for commands that need no database."""

from collections.abc import Mapping
from importlib.metadata import entry_points

from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.core.scaling.registry import OURS


def policies_here() -> Mapping[str, ScalingPolicy]:
    """Ours and those of plugins, by their names."""
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}
