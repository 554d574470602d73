"""Seeds, one after the other in this process: whatever goes wrong under one is its finding, not the end of the others."""

import signal
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from herdsman.sim.world.database import WorldDatabase
from herdsman.sim.world.faults import parse_faults
from herdsman.sim.world.run import Ran, run_seed
from herdsman.sim.world.scenarios import EVERYTHING, scenario_named

STEPS = 60
"""So many of the last steps of a seed are told."""
LONGEST_S = 60.0
"""Of computing: hundreds of times what a seed takes, so who needs more goes in circles."""
NO_HASH = "-" * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run; the words are those of the command line, so that each seed can be run again by itself."""

    seeds: range
    scenario: str = EVERYTHING
    faults: str = "all"
    steps: int = STEPS

    def replay(self, seed: int) -> str:
        return f"herdsman sim run --seed {seed} --faults {self.faults} --scenario {self.scenario}"


class TooLong(BaseException):
    """No `Exception`: the programs of the world would take it for one of their own troubles, and go on."""


class Runner:
    """Runs one seed at a time; to be used by the main thread."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._scenario = scenario_named(order.scenario)
        self._allowed = parse_faults(order.faults)
        self._database = WorldDatabase()

    def run(self, seed: int) -> Ran:
        try:
            with _limited():
                return run_seed(seed, self._allowed, self._database, self._order.steps, self._scenario)
        except (Exception, TooLong) as error:  # noqa: BLE001  (the outermost of this seed)
            # Nobody knows what was left half done in it.
            self._database = WorldDatabase()
            return broken(seed, "".join(traceback.format_exception(error)))


def broken(seed: int, why: str) -> Ran:
    """Of a seed that told no story."""
    return Ran(
        seed=seed,
        hash=NO_HASH,
        violations=(f"broken: {why.rstrip()}",),
        notes={},
        story=(),
        jobs=0,
        turns=0,
        lasted_s=0.0,
    )


@contextmanager
def _limited() -> Generator[None]:
    """By the time that this process computes, so that neither a busy machine nor a stopped one is taken for a circle."""

    def end(*_: object) -> None:
        raise TooLong(f"it computed for more than {LONGEST_S:g} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
