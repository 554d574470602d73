"""Prints the hash of each seed that is named, in that order: `python -m tests.simulation.hashes 3 1 2`."""

import sys

from herdsman.telemetry.logs import configure_logs
from herdsman.testing.simulation.runner import Order, Runner

configure_logs("CRITICAL", "json")
seeds = [int(word) for word in sys.argv[1:]]
runner = Runner(Order(seeds=range(0)))
for seed in seeds:
    ran = runner.run(seed)
    assert not ran.violations, ran.violations
    print(seed, ran.hash)
