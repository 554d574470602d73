"""Measures how fast one worker process works off jobs that wait already, beside other job queues.

Run it with `python -m bench.drain`. A peer that is not installed is named as such.
"""

import sys
from collections.abc import Mapping
from itertools import product

from bench.aims import Aim, load_now, over, surroundings, verdict
from bench.asked import answer, chosen, measured, parser, versions_of, with_peers
from bench.databases import postgres, sqlite
from bench.ourselves import Ourselves
from bench.peers.figures import ratio, table

STORES = {"SQLite": sqlite, "PostgreSQL": postgres}
TOGETHER = 100
PEERS = ("pgqueuer, batch 100", "pgqueuer", "taskiq, streams", "taskiq, lists", "celery", "procrastinate")
HEAD = """# Working off a queue

Jobs per second through one worker process: {jobs:,} jobs that do nothing wait already. The other columns say how
many times as fast as that peer each is.

"""
NOTES = (
    (
        "Herdsman's worker speaks to the API, as every worker does. Its handlers run in a process of their own. The watch stops when the last result is stored."
    ),
    "PostgreSQL and SQLite have every commit on the disk. Redis is as it comes: a crash may lose a minute of jobs.",
    "One round, one after the other; client and server share the machine.",
)


def name_of(store: str, batch: int) -> str:
    return f"Herdsman, {store}, {'one at a time' if batch == 1 else f'batch {batch}'}"


def main() -> None:
    made = with_peers(parser(__doc__))
    made.add_argument("--jobs", type=int, help="how many wait")
    asked = made.parse_args()
    jobs, before = asked.jobs or (1_000 if asked.quick else 20_000), load_now()
    ours = [
        Ourselves(name=name_of(store, batch), place=STORES[store], batch=batch)
        for store, batch in product(STORES, (1, TOGETHER))
    ]
    everyone = chosen(asked, ours, PEERS)
    versions = versions_of(everyone)
    rates = measured(everyone, versions, lambda peer: jobs / peer.drain(jobs))
    told = {peer: version for peer, version in versions.items() if peer in PEERS}
    parts = (surroundings(before, told, NOTES), _table(rates), verdict(aims(rates)))
    answer(HEAD.format(jobs=jobs) + "\n\n".join(parts) + "\n", asked.write)


def _table(rates: Mapping[str, float | None]) -> str:
    against = [peer for peer in PEERS if rates.get(peer)]
    rows = [
        [
            name,
            "not installed" if rate is None else f"{rate:,.0f}",
            *("" if rate is None else ratio(rate, rates[peer] or 0) for peer in against),
        ]
        for name, rate in rates.items()
    ]
    return table(["drain", "jobs/s", *(f"/ {peer}" for peer in against)], rows)


def aims(rates: Mapping[str, float | None]) -> list[Aim]:
    batch = _aim(rates, name_of("PostgreSQL", TOGETHER), "pgqueuer, batch 100", least=1.5)
    return [batch, *(_aim(rates, name_of(store, 1), "celery", least=3.0) for store in STORES)]


def _aim(rates: Mapping[str, float | None], ours: str, peer: str, *, least: float) -> Aim:
    return Aim(what=f"{ours}, against {peer}", ratio=over(rates.get(ours), rates.get(peer)), least=least)


if __name__ == "__main__":
    sys.exit(main())
