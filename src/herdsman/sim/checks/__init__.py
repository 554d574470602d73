"""What may never be found in a history, whoever made it: a simulation, a chaos test, or a herd in production."""

from herdsman.sim.checks.every import CHECKS, violations

__all__ = ["CHECKS", "violations"]
