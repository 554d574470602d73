"""What somebody who knows all arrivals would pay so that nobody waits, unless the ceiling makes them."""

from heapq import heappop, heappush

from herdsman.whatif.outcome import Outcome, rank
from herdsman.whatif.trace import Trace


def clairvoyant(trace: Trace, *, boot_s: float, most: int, price: float) -> Outcome:
    """Each machine starts just in time; between two jobs it is kept or started anew, whichever is cheaper.

    The machine that became free last takes the next job: the others' gaps then grow long enough to be worth ending.
    """
    paid, boots, waits = 0.0, 0, [0.0] * len(trace)
    running: list[float] = []
    free: list[float] = []
    for at, (came, took) in enumerate(zip(trace.arrival_s, trace.service_s, strict=True)):
        while running and running[0] <= came:
            free.append(heappop(running))
        begins = came
        if free:
            gap = came - free.pop()
            paid += min(gap, boot_s)
            boots += gap > boot_s
        elif len(running) < most:
            paid += boot_s
            boots += 1
        else:
            begins = heappop(running)
        waits[at] = begins - came
        paid += took
        heappush(running, begins + took)
    return _outcome(trace, waits, paid / 3600, price, boots, hours=max(running) / 3600)


def _outcome(trace: Trace, waits: list[float], gpu_hours: float, price: float, boots: int, *, hours: float) -> Outcome:
    waits.sort()
    return Outcome(
        name="clairvoyant bound",
        jobs=len(trace),
        unfinished=0,
        hours=hours,
        gpu_hours=gpu_hours,
        cost_usd=gpu_hours * price,
        wait_mean_s=sum(waits) / len(waits),
        wait_p50_s=rank(waits, 0.5),
        wait_p95_s=rank(waits, 0.95),
        wait_p99_s=rank(waits, 0.99),
        wait_max_s=waits[-1],
        within_target=1.0,
        utilisation=trace.work_s / 3600 / gpu_hours if gpu_hours else 0.0,
        spawns=boots,
        failed_spawns=0,
        peak_workers=0,
        cap_hits=0,
        cycles=0,
    )
