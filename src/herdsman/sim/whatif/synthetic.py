"""Traces made by rule: for tests, for benchmarks, and for who has none of their own yet."""

import math
from collections.abc import Callable, Iterator
from random import Random

from herdsman.sim.whatif.trace import Trace, made

Rate = Callable[[float], float]
Draw = Callable[[Random], float]

DAY_S = 86_400.0


def steady(per_hour: float, *, hours: float, service_s: float, seed: int = 1) -> Trace:
    """Each comes by itself, always as often."""
    return _by_rate("steady", lambda _: per_hour, per_hour, hours, exponential(service_s), seed)


def daily(per_hour: float, *, days: float, service_s: float, seed: int = 1) -> Trace:
    """Nearly nothing by night, twice the mean by day."""

    def rate(now: float) -> float:
        return per_hour * (1 - 0.95 * math.cos(2 * math.pi * now / DAY_S))

    return _by_rate("daily", rate, 2 * per_hour, 24 * days, exponential(service_s), seed)


def on_and_off(
    per_hour: float, *, hours: float, service_s: float, on_s: float = 1200, off_s: float = 3600, seed: int = 1
) -> Trace:
    """All of it comes in stretches, with nothing in between."""

    def rate(now: float) -> float:
        return per_hour if now % (on_s + off_s) < on_s else 0.0

    return _by_rate("on_and_off", rate, per_hour, hours, exponential(service_s), seed)


def in_batches(
    per_hour: float, *, hours: float, batch: int, service_s: float, tail: float = 1.2, seed: int = 1
) -> Trace:
    """So many batches an hour; how long a job takes has a heavy tail."""
    chance = Random(seed)
    rows: list[tuple[float, float]] = []
    now = 0.0
    while now < hours * 3600:
        rows += [(now, heavy(service_s, tail)(chance)) for _ in range(chance.randint(1, 2 * batch - 1))]
        now += chance.expovariate(per_hour / 3600)
    return made("in_batches", rows)


def exponential(mean: float) -> Draw:
    return lambda chance: chance.expovariate(1 / mean)


def heavy(mean: float, tail: float) -> Draw:
    """With the mean that is named and a deviation `tail` times as large."""
    spread = math.log(1 + tail**2)
    return lambda chance: chance.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))


def _by_rate(name: str, rate: Rate, most: float, hours: float, draw: Draw, seed: int) -> Trace:
    return made(name, _thinned(rate, most, hours, draw, Random(seed)))


def _thinned(
    rate: Rate, most: float, hours: float, draw: Draw, chance: Random
) -> Iterator[tuple[float, float]]:
    """As many as come at the highest rate, of which each stays as likely as the rate is then."""
    now = chance.expovariate(most / 3600)
    while now < hours * 3600:
        if chance.random() * most < rate(now):
            yield now, draw(chance)
        now += chance.expovariate(most / 3600)
