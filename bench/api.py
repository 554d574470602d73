"""Measures how many jobs a second the API takes, beside a route that does nothing.

Run it with `python -m bench.api`.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.aims import Aim, conclude, surroundings, verdict
from bench.asked import parser, say
from bench.databases import postgres, sqlite
from bench.floor import bare_posts
from bench.load import Load, posts_per_second
from bench.machine import Watch
from bench.peers.figures import ratio, table
from bench.running import a_server
from bench.work import KIND, PAYLOAD

STORES = {"SQLite": sqlite, "PostgreSQL": postgres}
BARE = {"FastAPI, a bare async route": "/async", "FastAPI, a bare plain route": "/plain"}
AGAINST = "FastAPI, a bare async route"
HEAD = """# Jobs taken over HTTP

POSTs of one job per second, by {clients} clients that keep their connections: medians of {rounds} rounds of {seconds:g} s.

"""
NOTES = (
    "The bare routes read the same body and answer 201, on the same server program; the plain one does so in a thread.",
    "Herdsman checks the token, stores the job durably and answers with its id. No worker waits.",
    "Clients and servers share the machine, and take turns.",
)


def main() -> int:
    asked = _asked()
    rounds = 1 if asked.quick else asked.rounds
    seconds, watch = asked.seconds or (1.0 if asked.quick else 5.0), Watch()
    loads: defaultdict[str, list[Load]] = defaultdict(list)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, path in BARE.items():
            loads[name].append(bare_posts(path, asked.clients, seconds))
        for store in STORES:
            loads[f"Herdsman, {store}"].append(_submits(store, asked.clients, seconds))
    head = HEAD.format(clients=asked.clients, rounds=rounds, seconds=seconds)
    parts = (surroundings(watch, {}, NOTES), _table(loads), verdict(aims(loads)))
    return conclude(asked, "api", head + "\n\n".join(parts) + "\n", aims(loads), watch)


def _submits(store: str, clients: int, seconds: float) -> Load:
    body = json.dumps({"type": KIND, "payload": PAYLOAD}).encode()
    with (
        TemporaryDirectory(prefix="herdsman-bench-") as directory,
        STORES[store](["bench"]) as place,
        a_server(place.urls["bench"], Path(directory)) as server,
    ):
        return posts_per_second(f"{server.url}/jobs/submit", body, server.headers, clients, seconds)


def _table(loads: Mapping[str, Sequence[Load]]) -> str:
    rows = [
        [
            name,
            f"{_rate(found):,.0f}",
            *(f"{1e3 * median(values):.2f}" for values in zip(*((x.p50, x.p99) for x in found), strict=True)),
            str(sum(load.errors for load in found)),
            *(ratio(_rate(found), _rate(loads[bare])) for bare in BARE),
        ]
        for name, found in loads.items()
    ]
    return table(["POST", "per second", "p50, ms", "p99, ms", "errors", *(f"/ {bare}" for bare in BARE)], rows)


def _rate(found: Sequence[Load]) -> float:
    return median(load.per_second for load in found)


def aims(loads: Mapping[str, Sequence[Load]]) -> list[Aim]:
    return [
        Aim(
            what=f"submits a second of Herdsman, {store}, against {AGAINST}",
            ratio=_rate(loads[f"Herdsman, {store}"]) / _rate(loads[AGAINST]),
            least=0.6,
        )
        for store in STORES
    ]


def _asked() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--clients", type=int, default=16, help="connections that are kept alive")
    made.add_argument("--seconds", type=float, help="how long they send")
    made.add_argument("--rounds", type=int, default=3, help="more rounds, less noise")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
