"""Seeds one after the other until one finds something: what a mutation gate runs, in a process of its own."""

import logging
import sys

import structlog

from herdsman.sim.world.database import WorldDatabase
from herdsman.sim.world.faults import Fault
from herdsman.sim.world.run import run_seed


def hunt(most: int) -> int:
    """1 when a seed found something, 0 when none did."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    database = WorldDatabase()
    for seed in range(most):
        ran = run_seed(seed, frozenset(Fault), database)
        if ran.violations:
            print(f"seed {seed}: {ran.violations[0]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(hunt(int(sys.argv[1])))
