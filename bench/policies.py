"""Cost against wait: our policies, how others do it, and what the best foresight would cost, on the same demand.

    python -m bench.policies [--traces DIR] [--target 120] [--boot 90] [--out bench/results]

Traces are `NAME.csv.gz` with a `manifest.json` that gives the limits of each; without them only those made by rule are
replayed, and that is said.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from bench.clairvoyant import clairvoyant
from bench.report import machine, today
from bench.scalers import PEERS
from herdsman.core.policy import FleetPolicy
from herdsman.sim.whatif import synthetic
from herdsman.sim.whatif.boots import Boots
from herdsman.sim.whatif.outcome import Outcome
from herdsman.sim.whatif.picture import can_draw, write_html, write_png
from herdsman.sim.whatif.replay import Setup, replay, steered
from herdsman.sim.whatif.sweep import worthwhile
from herdsman.sim.whatif.trace import Trace, read_trace

OURS = ("threshold", "workload", "adaptive")
SHARED = Path("../shared/traces")
PRICE = 0.5
HEADS = ("", "GPU-hours", "p50 s", "p95 s", "p99 s", "in time", "in use", "spawns")


@dataclass(frozen=True)
class Case:
    trace: Trace
    least: int
    most: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=SHARED)
    parser.add_argument("--target", type=float, default=120.0)
    parser.add_argument("--boot", type=float, default=90.0)
    parser.add_argument("--spread", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    asked = parser.parse_args()
    parts = [_head(asked.target, asked.boot, asked.spread)]
    for case in cases(asked.traces):
        begun = time.monotonic()
        found = measured(case, target=asked.target, boots=Boots(mean_s=asked.boot, spread_s=asked.spread))
        parts.append(table(case, found))
        print(f"{parts[-1]}\n\n{time.monotonic() - begun:.0f} s\n", flush=True)
        _draw(asked.out / "policies" / case.trace.name.removesuffix(".csv.gz"), case, found)
    (asked.out / "policies.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def cases(folder: Path) -> Iterator[Case]:
    manifest = folder / "manifest.json"
    if manifest.is_file():
        for known in json.loads(manifest.read_text(encoding="utf-8")).values():
            yield Case(read_trace(folder / known["file"]), known["min_workers"], known["max_workers"])
    else:
        print(f"SKIPPED: there are no traces in {folder}; give their folder with --traces\n")
    yield Case(synthetic.daily(200, days=4, service_s=180), 1, 40)
    yield Case(synthetic.on_and_off(600, hours=24, service_s=60), 1, 40)
    yield Case(synthetic.in_batches(3, hours=72, batch=12, service_s=300), 1, 60)
    yield Case(synthetic.steady(20, hours=72, service_s=900), 1, 40)


def measured(case: Case, *, target: float, boots: Boots) -> list[Outcome]:
    rules = FleetPolicy(min_workers=case.least, max_workers=case.most, target_wait=timedelta(seconds=target))
    setup = Setup(policy=rules, boots=boots, price=PRICE)
    found = [replay(case.trace, replace(setup, policy=replace(rules, scaling=name)), name) for name in OURS]
    for name, (peer, poll) in PEERS.items():
        polled = replace(setup, poll_s=poll)
        found.append(
            steered(case.trace, polled, lambda world, peer=peer: peer(world, case.least, case.most), name)
        )
    found.append(clairvoyant(case.trace, boot_s=boots.mean_s, most=case.most, price=PRICE))
    return found


def table(case: Case, found: list[Outcome]) -> str:
    """A star where no other that does not know the future is both cheaper and quicker."""
    trace, good = case.trace, worthwhile(found[:-1])
    head = (
        f"## {trace.name}\n\n{len(trace):,} jobs in {trace.arrival_s[-1] / 3600:.0f} h,"
        f" {trace.work_s / 3600:.0f} GPU-hours of work, {case.least} to {case.most} workers.\n"
    )
    rules = ["---", *("---:" for _ in HEADS[1:])]
    rows = [HEADS, rules, *(_row(each, each in good) for each in found)]
    return "\n".join([head, *(f"| {' | '.join(cells)} |" for cells in rows)])


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

GPU-hours and waits of the same jobs on the same pretended machines: one job at a time each, a start takes {boot:.0f} s
(deviation {spread:.0f} s), and the target is {target:.0f} s. A star marks those of which no other is both cheaper and
quicker. Ours go through the real `decide` every 30 s, idle workers go after 5 min (adaptive: half a start); the others are
sketches of their rules and usual defaults (`bench/scalers.py`), not checked against the products, each with a loop and
idle time of its own. The bound knows every arrival and keeps no floor.

- Made on {today()}: {machine()}. `python -m bench.policies` makes it again."""


def _draw(stem: Path, case: Case, found: list[Outcome]) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    title = f"{case.trace.name}: {len(case.trace):,} jobs"
    write_html(stem.with_suffix(".html"), found, title, "GPU-hours against the wait of 95 of 100 jobs")
    if can_draw():
        write_png(stem.with_suffix(".png"), found, title)
    else:
        print("SKIPPED: no PNG without matplotlib\n")


if __name__ == "__main__":
    main()
