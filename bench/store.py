"""Measures the store on real databases, beside the same statements written by hand on the driver.

Run it with `python -m bench.store`. It ends with status 1 when one of the limits is not kept.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from bench.backlog import fill
from bench.databases import PLACES, Place, connected, opened
from bench.durability import settings_of
from bench.measure import Effort, measure
from bench.ours import Ours, enlist
from bench.raw import TONGUES, Raw
from bench.report import Measured, report
from bench.work import KIND, PAYLOAD, Contender
from herdsman.jobs.model import NewJob

FULL = Effort(rounds=60, cycles={1: 10, 100: 1})
QUICK = Effort(rounds=8, cycles={1: 10, 100: 1})


def main() -> int:
    asked = _arguments()
    effort = QUICK if asked.quick else FULL
    effort = Effort(asked.rounds or effort.rounds, effort.cycles)
    backlogs = asked.backlogs or ([0, 2_000] if asked.quick else [0, 100_000, 1_000_000])
    measured = [_measure(PLACES[name], backlogs, effort) for name in asked.databases]
    table = report(measured, effort)
    print(table)
    if asked.write:
        asked.write.write_text(table)
    return 0 if all(finding.kept for one in measured for finding in one.findings()) else 1


def _measure(
    start: Callable[[list[str]], AbstractContextManager[Place]], backlogs: list[int], effort: Effort
) -> Measured:
    """One database for each backlog, all at once: then the growth, too, is measured in turns."""
    with ExitStack() as stack:
        names = {backlog: f"waiting_{backlog}" for backlog in backlogs}
        place = stack.enter_context(start(list(names.values())))
        _say(f"{place.name} {place.version}: filling")
        fields = {backlog: _contenders(stack, place.urls[name], backlog) for backlog, name in names.items()}
        _say(f"{place.name} {place.version}: measuring")
        return Measured(place, settings_of(place.urls[names[backlogs[0]]]), measure(fields, effort), backlogs)


def _contenders(stack: ExitStack, url: str, backlog: int) -> dict[str, Contender]:
    services = stack.enter_context(opened(url))
    enlist(services)
    fill(services, NewJob(type=KIND, payload=PAYLOAD), backlog)
    dialect, connection = stack.enter_context(connected(url))
    return {"ours": Ours(services), "raw": Raw(connection, TONGUES[dialect])}


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--databases", type=_databases, default=list(PLACES), help=f"of {', '.join(PLACES)}")
    parser.add_argument("--backlogs", type=_numbers, help="how many jobs wait, as in 0,100000,1000000")
    parser.add_argument("--rounds", type=int, help="more rounds, less noise")
    parser.add_argument("--quick", action="store_true", help="small numbers, to see that it works")
    parser.add_argument("--write", type=Path, help="where to keep the table as well")
    return parser.parse_args()


def _databases(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in PLACES]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
    return names


def _numbers(text: str) -> list[int]:
    return sorted({int(number) for number in text.split(",")})


if __name__ == "__main__":
    sys.exit(main())
