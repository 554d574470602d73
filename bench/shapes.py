"""Demand made by rule, for traces that nobody has tuned anything to: two sets that differ in their seeds and sizes."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from herdsman.whatif.machines import Boots
from herdsman.whatif.trace import Trace, made

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
LONGEST_S = 4 * HOUR_S
Jobs = list[tuple[float, float]]
Rate = Callable[[float], float]
Draw = Callable[[Random], float]


@dataclass(frozen=True)
class Case:
    trace: Trace
    least: int
    most: int
    boots: Boots | None = None
    """None for those of the whole run."""


def tuning() -> Iterator[Case]:
    """Those that the mechanism was looked at with."""
    return _cases("tune", seed=1, size=1.0)


def unseen() -> Iterator[Case]:
    """Those that it was only measured on."""
    return _cases("unseen", seed=1001, size=1.35)


def _cases(kind: str, *, seed: int, size: float) -> Iterator[Case]:
    for number, (name, make, least, most, boots) in enumerate(SHAPES):
        rows = make(Random(seed + number), size)
        yield Case(made(f"{kind}: {name}", sorted(rows)), least, most, boots)


def exponential(mean: float) -> Draw:
    return lambda chance: chance.expovariate(1 / mean)


def heavy(mean: float, tail: float) -> Draw:
    """With the mean that is named and a deviation `tail` times as large."""
    spread = math.log(1 + tail**2)
    return lambda chance: chance.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))


def steady(chance: Random, per_hour: float, hours: float, draw: Draw) -> Jobs:
    return _thinned(chance, lambda _: per_hour, per_hour, hours, draw)


def noisy_day(chance: Random, per_hour: float, hours: float, draw: Draw, noise: float = 0.6) -> Jobs:
    """By day twice the mean, by night a tenth, and each ten minutes with a luck of their own."""
    luck = [chance.lognormvariate(-(noise**2) / 2, noise) for _ in range(int(hours * 6) + 2)]

    def rate(now: float) -> float:
        return per_hour * (1 - 0.9 * math.cos(2 * math.pi * now / DAY_S)) * luck[int(now // 600)]

    return _thinned(chance, rate, per_hour * 1.9 * max(luck), hours, draw)


def flash_crowds(chance: Random, per_hour: float, hours: float, draw: Draw, times: float = 20) -> Jobs:
    """Every few hours, ten minutes of many times as many."""
    edges = _stretches(chance, hours, off_s=5 * HOUR_S, on_s=lambda: 600.0)
    return _thinned(chance, lambda now: per_hour * (times if _inside(now, edges) else 1), per_hour * times, hours, draw)


def on_and_off(chance: Random, per_hour: float, hours: float, draw: Draw) -> Jobs:
    edges = _stretches(chance, hours, off_s=2700, on_s=lambda: chance.expovariate(1 / 900))
    return _thinned(chance, lambda now: per_hour if _inside(now, edges) else 0.0, per_hour, hours, draw)


def dumps(chance: Random, per_hour: float, hours: float, size: float, draw: Draw) -> Jobs:
    """A trickle, and at three fixed hours of each day a heap."""
    rows = steady(chance, per_hour, hours, draw)
    for day in range(int(hours // 24) + 1):
        for hour in (2, 9, 15):
            at = (24 * day + hour) * HOUR_S
            count = int(size * chance.uniform(0.6, 1.4)) if at < hours * HOUR_S else 0
            rows += [(at + chance.uniform(0, 20), draw(chance)) for _ in range(count)]
    return rows


def ramp(chance: Random, per_hour: float, hours: float, draw: Draw) -> Jobs:
    """Twice from nothing to the whole, and down at once."""
    half = hours * HOUR_S / 2
    return _thinned(chance, lambda now: per_hour * (now % half) / half, per_hour, hours, draw)


def batches(chance: Random, per_hour: float, hours: float, size: int, draw: Draw) -> Jobs:
    rows: Jobs = []
    now = 0.0
    while now < hours * HOUR_S:
        rows += [(now, draw(chance)) for _ in range(chance.randint(1, 2 * size - 1))]
        now += chance.expovariate(per_hour / HOUR_S)
    return rows


def pareto(mean: float, tail: float) -> Draw:
    return lambda chance: min(mean * (tail - 1) / tail * chance.paretovariate(tail), LONGEST_S)


def _stretches(chance: Random, hours: float, *, off_s: float, on_s: Callable[[], float]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    now = 0.0
    while now < hours * HOUR_S:
        begins = now + chance.expovariate(1 / off_s)
        now = begins + on_s()
        found.append((begins, now))
    return found


def _inside(now: float, edges: Sequence[tuple[float, float]]) -> bool:
    at = bisect_right(edges, (now, math.inf)) - 1
    return at >= 0 and now < edges[at][1]


def _thinned(chance: Random, rate: Rate, most: float, hours: float, draw: Draw) -> Jobs:
    rows: Jobs = []
    now = chance.expovariate(most / HOUR_S)
    while now < hours * HOUR_S:
        if chance.random() * most < rate(now):
            rows.append((now, draw(chance)))
        now += chance.expovariate(most / HOUR_S)
    return rows


def _boots(mean_s: float = 90.0, spread_s: float = 20.0, failing: float = 0.0) -> Boots:
    return Boots(mean_s=mean_s, spread_s=spread_s, failing=failing)


Shape = tuple[str, Callable[[Random, float], Jobs], int, int, Boots]

SHAPES: tuple[Shape, ...] = (
    ("noisy days", lambda c, z: noisy_day(c, 120 * z, 36, exponential(180)), 1, 40, _boots()),
    (
        "noisy days, long tails",
        lambda c, z: noisy_day(c, 60 * z, 36, heavy(300, 2)),
        1,
        60,
        _boots(failing=0.1),
    ),
    ("flash crowds", lambda c, z: flash_crowds(c, 30 * z, 36, exponential(60)), 1, 60, _boots()),
    (
        "flash crowds, 5 min",
        lambda c, z: flash_crowds(c, 10 * z, 36, heavy(300, 1), 15),
        1,
        60,
        _boots(60, 10),
    ),
    ("heaps", lambda c, z: dumps(c, 20, 48, 100 * z, exponential(120)), 1, 80, _boots()),
    ("heaps, 10 min", lambda c, z: dumps(c, 4, 48, 40 * z, heavy(600, 1.5)), 0, 80, _boots(120, 40)),
    ("ramps", lambda c, z: ramp(c, 300 * z, 24, exponential(120)), 1, 60, _boots()),
    ("Pareto", lambda c, z: steady(c, 20 * z, 36, pareto(400, 1.5)), 1, 60, _boots()),
    ("now and then", lambda c, z: steady(c, 2 * z, 72, exponential(300)), 0, 20, _boots()),
    ("an hour each", lambda c, z: steady(c, 6 * z, 60, exponential(3600)), 0, 40, _boots()),
    ("bursts, 30 s", lambda c, z: on_and_off(c, 900 * z, 24, exponential(30)), 1, 40, _boots()),
    ("bursts, 5 min", lambda c, z: on_and_off(c, 120 * z, 30, heavy(300, 1)), 1, 60, _boots()),
    ("a second each", lambda c, z: noisy_day(c, 3000 * z, 24, exponential(1)), 1, 20, _boots()),
    ("batches, 5 min", lambda c, z: batches(c, 3 * z, 40, 10, heavy(300, 1.2)), 1, 60, _boots()),
    ("batches, 1 min", lambda c, z: batches(c, 6 * z, 36, 15, exponential(60)), 1, 60, _boots(80, 15, 0.3)),
    ("starts of 30 s", lambda c, z: on_and_off(c, 200 * z, 24, exponential(120)), 0, 60, _boots(30, 5)),
    ("starts of 5 min", lambda c, z: noisy_day(c, 120 * z, 36, exponential(180)), 1, 60, _boots(300, 80)),
    (
        "starts of 10 min",
        lambda c, z: noisy_day(c, 100 * z, 48, exponential(240), 0.3),
        1,
        60,
        _boots(600, 150),
    ),
    (
        "starts of 5 min, steady",
        lambda c, z: steady(c, 40 * z, 30, heavy(400, 1)),
        1,
        60,
        _boots(300, 60, 0.1),
    ),
    ("starts of 5 min, seldom", lambda c, z: steady(c, 4 * z, 60, exponential(300)), 1, 20, _boots(300, 60)),
    (
        "three of ten starts fail",
        lambda c, z: noisy_day(c, 80 * z, 30, exponential(200)),
        1,
        60,
        _boots(failing=0.3),
    ),
    ("starts of any length", lambda c, z: steady(c, 30 * z, 36, exponential(500)), 1, 60, _boots(100, 50)),
)
