"""Seeds that have found something once are run for ever."""

from pathlib import Path

import pytest

from herdsman.testing.simulation.runner import Order, Runner

FILE = Path(__file__).with_name("regression_seeds.txt")


def kept() -> list[tuple[int, str, str]]:
    lines = (line.partition("#")[0].split() for line in FILE.read_text(encoding="utf-8").splitlines())
    return [(int(seed), scenario, faults) for seed, scenario, faults in filter(None, lines)]


@pytest.mark.parametrize(("seed", "scenario", "faults"), kept())
def test_what_a_seed_once_found_stays_mended(seed: int, scenario: str, faults: str) -> None:
    order = Order(seeds=range(seed, seed + 1), scenario=scenario, faults=faults)
    ran = Runner(order).run(seed)
    assert ran.violations == (), f"replay it: {order.replay(seed)}"
    assert ran.jobs > 0


def test_each_kept_seed_says_what_it_found() -> None:
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) == len(kept())
    assert all(line.partition("#")[2].strip() for line in lines)
