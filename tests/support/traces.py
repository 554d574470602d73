"""Traces made by rule, for replays."""

import math
from collections.abc import Callable
from random import Random

from bench.shapes import DAY_S, Draw, exponential, heavy
from herdsman.whatif.trace import Trace, made

Rate = Callable[[float], float]


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


def _by_rate(name: str, rate: Rate, most: float, hours: float, draw: Draw, seed: int) -> Trace:
    """Thinning: arrivals at the highest rate, each kept with the probability of the rate at that time."""
    chance, rows = Random(seed), list[tuple[float, float]]()
    now = chance.expovariate(most / 3600)
    while now < hours * 3600:
        if chance.random() * most < rate(now):
            rows.append((now, draw(chance)))
        now += chance.expovariate(most / 3600)
    return made(name, rows)
