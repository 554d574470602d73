"""Tables of how long something took: the middle, the slowest hundredth, and that against others."""

from collections.abc import Mapping, Sequence

from bench.peers.figures import percentile, ratio

Times = Mapping[str, Sequence[float] | None]
"""In seconds; None for one that is not installed."""


def p99(times: Times, name: str) -> float | None:
    found = times.get(name)
    return None if found is None else percentile(found, 0.99)


def cells(found: Sequence[float] | None, against: Sequence[float | None]) -> list[str]:
    """In milliseconds; what there is nothing to compare with stays empty."""
    if found is None:
        return ["not installed", "", *("" for _ in against)]
    worst = percentile(found, 0.99)
    return [
        f"{1e3 * percentile(found, 0.5):.2f}",
        f"{1e3 * worst:.2f}",
        *("" if other is None else ratio(worst, other) for other in against),
    ]
