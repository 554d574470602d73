"""Measures how fast one worker process works off jobs that wait already, beside other job queues.

Run it with `python -m bench.drain`. A peer that is not installed is named as such.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median

from bench.aims import Aim, conclude, over, surroundings, verdict
from bench.asked import chosen, measured, parser, say, versions_of, with_peers
from bench.databases import mariadb, postgres, sqlite
from bench.machine import Watch
from bench.ourselves import Ourselves
from bench.peers.figures import ratio, table
from bench.peers.peer import Drained

STORES = {"SQLite": sqlite, "PostgreSQL": postgres, "MariaDB": mariadb}
MODES = {"one at a time": 1, "batch 100": 100}
PGQUEUER, BATCH = "pgqueuer", "pgqueuer, batch 100"
PEERS = (BATCH, PGQUEUER, "taskiq, lists", "celery", "dramatiq", "huey", "procrastinate", "graphile-worker")
HEAD = """# Working off a queue

Jobs per second through one worker process: {jobs:,} jobs that do nothing wait already; medians of {rounds} rounds. CPU
is that of all processes together, with the servers that are needed. The other columns say how many times as fast as
that peer each is.

"""
NOTES = (
    (
        "Herdsman's worker speaks to the API over HTTP, as every worker does, and its handlers run in a process of their"
        " own. The watch stops when the last result is stored. After each round every job was done once, by one"
        " execution, and its history had no gap."
    ),
    "PostgreSQL, MariaDB and SQLite have every commit on the disk. Redis is as it comes: a crash may lose a minute of jobs.",
    "graphile-worker runs on Node with its local queue; huey and the others as they come, with one thread.",
    "One after the other, in turns; client and server share the machine.",
)

Rounds = Mapping[str, Sequence[Drained]]
"""What was measured of each; nothing where it is not installed."""


def name_of(store: str, mode: str) -> str:
    return f"Herdsman, {store}, {mode}"


def main() -> int:
    made = with_peers(parser(__doc__))
    made.add_argument("--jobs", type=int, help="how many wait")
    made.add_argument("--rounds", type=int, help="more rounds, less noise")
    asked = made.parse_args()
    jobs, rounds = asked.jobs or (1_000 if asked.quick else 20_000), asked.rounds or (1 if asked.quick else 3)
    watch = Watch()
    ours = [
        Ourselves(name=name_of(store, mode), place=STORES[store], batch=MODES[mode])
        for store, mode in product(STORES, MODES)
    ]
    everyone = chosen(asked, ours, PEERS)
    versions = versions_of(everyone)
    found = defaultdict[str, list[Drained]](list)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, drained in measured(everyone, versions, lambda peer: peer.drain(jobs)).items():
            found[name] += [] if drained is None else [drained]
    told = {peer: version for peer, version in versions.items() if peer in PEERS}
    parts = (surroundings(watch, told, NOTES), _table(found), verdict(aims(found)))
    text = HEAD.format(jobs=jobs, rounds=rounds) + "\n\n".join(parts) + "\n"
    return conclude(asked, "drain", text, aims(found), watch)


def _rate(found: Rounds, name: str) -> float | None:
    return median(each.per_second for each in found[name]) if found.get(name) else None


def _table(found: Rounds) -> str:
    against = [peer for peer in PEERS if found.get(peer)]
    rows: list[list[str]] = []
    for name, rounds in found.items():
        rate = _rate(found, name)
        if rate is None:
            rows.append([name, "not installed", *("" for _ in range(len(against) + 1))])
            continue
        cpu = f"{1e6 * median(each.cpu_s for each in rounds):,.0f}"
        rows.append([name, f"{rate:,.0f}", cpu, *(ratio(rate, _rate(found, peer) or 0) for peer in against)])
    return table(["drain", "jobs/s", "CPU, us/job", *(f"/ {peer}" for peer in against)], rows)


LEAST = (
    ("SQLite", "one at a time", "celery", 5.0),
    ("SQLite", "one at a time", "taskiq, lists", 2.0),
    ("PostgreSQL", "one at a time", "celery", 4.0),
    ("PostgreSQL", "one at a time", PGQUEUER, 1.0),
    ("SQLite", "batch 100", BATCH, 1.2),
    ("PostgreSQL", "batch 100", BATCH, 0.8),
    ("PostgreSQL", "batch 100", "graphile-worker", 0.4),
)


def aims(found: Rounds) -> list[Aim]:
    beside_peers = [
        Aim(
            what=f"{name_of(store, mode)}, against {peer}",
            ratio=over(_rate(found, name_of(store, mode)), _rate(found, peer)),
            least=least,
        )
        for store, mode, peer, least in LEAST
    ]
    between_stores = [
        Aim(
            what=f"{name_of('PostgreSQL', mode)}, against MariaDB",
            ratio=over(_rate(found, name_of("PostgreSQL", mode)), _rate(found, name_of("MariaDB", mode))),
            most=1.5,
        )
        for mode in MODES
    ]
    return [*beside_peers, *between_stores]


if __name__ == "__main__":
    sys.exit(main())
