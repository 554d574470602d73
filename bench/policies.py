"""Cost against wait: our policies, how others do it, and what the best foresight would cost, on the same demand.

    python -m bench.policies [--traces DIR | --trace FILE ...] [--target 120] [--boot 90] [--jobs 2]

Traces are `NAME.csv.gz` with a `manifest.json` that gives the limits of each. Without them, which is said, and besides
them the shapes of `bench/shapes.py` are replayed that nothing was tuned to; `--tuning` takes those others instead.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench import shapes
from bench.clairvoyant import clairvoyant
from bench.machine import machine
from bench.report import today
from bench.scalers import PEERS
from bench.shapes import Case
from bench.standing import standing
from herdsman.fleet.model import FleetPolicy
from herdsman.whatif.machines import Boots
from herdsman.whatif.outcome import Outcome, worthwhile
from herdsman.whatif.picture import can_draw, write_html, write_png
from herdsman.whatif.replay import Setup, replay, steered
from herdsman.whatif.trace import read_trace

OURS = ("threshold", "workload", "adaptive")
OFTEN_S = 10.0
SHARED = Path("../shared/traces")
PRICE = 0.5
HEADS = ("", "GPU-hours", "p50 s", "p95 s", "p99 s", "in time", "in use", "spawns")


@dataclass(frozen=True)
class Found:
    case: Case
    outcomes: list[Outcome]
    took_s: float


def main() -> None:
    asked = _asked()
    boots = Boots(mean_s=asked.boot, spread_s=asked.spread)
    given = list(_given(asked))
    made = [] if asked.trace else list(shapes.tuning() if asked.tuning else shapes.unseen())
    parts = [_head(asked.target, asked.boot, asked.spread)]
    found: list[Found] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for each in pool.map(partial(measured, target=asked.target, boots=boots), [*given, *made]):
            found.append(each)
            parts.append(table(each))
            print(f"{parts[-1]}\n\n{each.took_s:.0f} s\n", flush=True)
            _draw(asked.out / "policies", each)
    for title, some in (("Traces", found[: len(given)]), ("Shapes", found[len(given) :])):
        if some:
            parts.insert(1, standing(title, [each.outcomes for each in some], asked.target))
            print(parts[1])
    (asked.out / "policies.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=SHARED)
    parser.add_argument("--trace", type=Path, action="append", help="one of your own, instead of all others")
    parser.add_argument("--least", type=int, default=1, help="the fewest workers for --trace")
    parser.add_argument("--most", type=int, default=40, help="the most workers for --trace")
    parser.add_argument("--tuning", action="store_true", help="the shapes that were looked at while tuning")
    parser.add_argument("--target", type=float, default=120.0)
    parser.add_argument("--boot", type=float, default=90.0)
    parser.add_argument("--spread", type=float, default=20.0)
    parser.add_argument("--jobs", type=int, default=1, help="replays at once")
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    return parser.parse_args()


def _given(asked: argparse.Namespace) -> Iterator[Case]:
    manifest = asked.traces / "manifest.json"
    if asked.trace:
        yield from (Case(read_trace(path), asked.least, asked.most) for path in asked.trace)
    elif manifest.is_file():
        for known in json.loads(manifest.read_text(encoding="utf-8")).values():
            trace = read_trace(asked.traces / known["file"])
            yield Case(trace, known["min_workers"], known["max_workers"])
    else:
        print(f"SKIPPED: there are no traces in {asked.traces}; give their folder with --traces\n")


def measured(case: Case, *, target: float, boots: Boots) -> Found:
    begun, boots = time.monotonic(), case.boots or boots
    rules = FleetPolicy(min_workers=case.least, max_workers=case.most, target_wait=timedelta(seconds=target))
    setup = Setup(policy=rules, boots=boots, price=PRICE)
    found = [replay(case.trace, replace(setup, policy=replace(rules, scaling=name)), name) for name in OURS]
    often = replace(setup, policy=replace(rules, scaling="adaptive"), poll_s=OFTEN_S)
    found.append(replay(case.trace, often, f"adaptive, every {OFTEN_S:.0f} s"))
    for name, (peer, poll) in PEERS.items():
        polled = replace(setup, poll_s=poll)
        found.append(steered(case.trace, polled, lambda world, peer=peer: peer(world, case.least, case.most), name))
    found.append(clairvoyant(case.trace, boot_s=boots.mean_s, most=case.most, price=PRICE))
    return Found(case, found, time.monotonic() - begun)


def table(each: Found) -> str:
    """A star where no other that does not know the future is both cheaper and quicker."""
    case, found = each.case, each.outcomes
    trace, good = case.trace, worthwhile(found[:-1])
    starts = "" if case.boots is None else f" {_starts(case.boots)}"
    head = (
        f"## {trace.name}\n\n{len(trace):,} jobs in {trace.arrival_s[-1] / 3600:.0f} h,"
        f" {trace.work_s / 3600:.0f} GPU-hours of work, {case.least} to {case.most} workers.{starts}\n"
    )
    rules = ["---", *("---:" for _ in HEADS[1:])]
    rows = [HEADS, rules, *(_row(each, each in good) for each in found)]
    return "\n".join([head, *(f"| {' | '.join(cells)} |" for cells in rows)])


def _starts(boots: Boots) -> str:
    failing = f", and {boots.failing:.0%} fail" if boots.failing else ""
    return f"A start takes {boots.mean_s:.0f} s (deviation {boots.spread_s:.0f} s){failing}."


def _row(each: Outcome, good: bool) -> list[str]:  # noqa: FBT001
    return [
        f"{each.name}{' *' if good else ''}",
        f"{each.gpu_hours:.1f}",
        f"{each.wait_p50_s:.0f}",
        f"{each.wait_p95_s:.0f}",
        f"{each.wait_p99_s:.0f}",
        f"{each.within_target:.1%}",
        f"{each.utilisation:.0%}",
        str(each.spawns),
    ]


def _head(target: float, boot: float, spread: float) -> str:
    return f"""# Policies beside each other

GPU-hours and waits of the same jobs on the same simulated machines: one job at a time each, a start takes {boot:.0f} s
(deviation {spread:.0f} s) where nothing else is said, and the target is {target:.0f} s. A star marks those of which no
other is both cheaper and quicker. Ours go through the real `decide` every 30 s, idle workers go after 5 min (adaptive:
a quarter of a start, or a whole one where starts come too late); one row has a look every {OFTEN_S:.0f} s. The others are
models of their documented rules and defaults (`bench/scalers.py`), not the products, each with a loop and idle time of
its own. The bound knows every arrival and keeps no floor. Shapes are made by rule, from seeds and sizes that nothing was
tuned to; some cannot be kept at all, because heaps of jobs come out of nowhere and a start takes longer than the target.

- Made on {today()}: {machine()}. `python -m bench.policies` makes it again."""


def _draw(folder: Path, each: Found) -> None:
    """A picture and a page for each trace; of the shapes only the table."""
    if each.case.boots is not None:
        return
    stem = folder / each.case.trace.name.removesuffix(".gz").removesuffix(".csv")
    stem.parent.mkdir(parents=True, exist_ok=True)
    title = f"{each.case.trace.name}: {len(each.case.trace):,} jobs"
    said, (*found, bound) = "GPU-hours against the wait of 95 of 100 jobs", each.outcomes
    write_html(stem.with_suffix(".html"), found, title, said, bound)
    if can_draw():
        write_png(stem.with_suffix(".png"), found, title, bound)
    else:
        print("SKIPPED: no PNG without matplotlib\n")


if __name__ == "__main__":
    main()
