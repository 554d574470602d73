"""Measures the time from before a job is submitted until its handler begins, on a worker with nothing to do.

Run it with `python -m bench.dispatch`. Beside it: the least that the same store costs, and other job queues.
"""

import sys
from collections.abc import Sequence

from bench.aims import Aim, conclude, over, surroundings, verdict
from bench.asked import chosen, measured, parser, say, versions_of, with_peers
from bench.databases import postgres, sqlite
from bench.delays import Times, cells, p99
from bench.floor import postgres_dispatch, sqlite_dispatch
from bench.machine import Watch
from bench.ourselves import Ourselves
from bench.peers.figures import table
from bench.peers.peer import Peer

STORES = {"SQLite": sqlite, "PostgreSQL": postgres}
FLOORS = {
    "SQLite": ("SQLite alone, polled without a pause", sqlite_dispatch),
    "PostgreSQL": ("PostgreSQL alone, LISTEN and NOTIFY", postgres_dispatch),
}
PEERS = ("celery", "arq", "arq, polling every ms", "procrastinate")
PAUSE_S = 0.02
# A worker that polls must be met at any point of its interval.
PAUSES = {"arq": 0.5}
FEWER = {"arq": 5}
HEAD = """# From submission to start

Milliseconds from before a job is submitted until the first line of its handler, on an idle worker.

"""
NOTES = (
    (
        "Herdsman: submitted over HTTP by its client, stored, claimed by a worker that waits at the API, and run in its"
        " handler's process."
    ),
    "The floors: a row that is inserted durably, seen by another process, and claimed durably.",
    "arq as it comes polls twice a second, so it is asked a fifth as often, with longer pauses.",
)


def main() -> int:
    made = with_peers(parser(__doc__))
    made.add_argument("--samples", type=int, help="how many jobs are submitted")
    asked = made.parse_args()
    samples, watch = asked.samples or (50 if asked.quick else 1_000), Watch()
    everyone = chosen(asked, [Ourselves(name=_ours(name), place=STORES[name]) for name in STORES], PEERS)
    versions = versions_of(everyone)
    times: dict[str, Sequence[float] | None] = {}
    for name, floor in FLOORS.values():
        say(name)
        times[name] = floor(samples, PAUSE_S)
    times |= measured(everyone, versions, lambda peer: _latency(peer, samples))
    told = {peer: version for peer, version in versions.items() if peer in PEERS}
    parts = (
        surroundings(watch, told, (f"{samples:,} samples.", *NOTES)),
        _table(times),
        verdict(aims(times)),
    )
    return conclude(asked, "dispatch", HEAD + "\n\n".join(parts) + "\n", aims(times), watch)


def _ours(store: str) -> str:
    return f"Herdsman, {store}"


def _latency(peer: Peer, samples: int) -> list[float]:
    return peer.latency(max(1, samples // FEWER.get(peer.name, 1)), PAUSES.get(peer.name, PAUSE_S))


def _table(times: Times) -> str:
    floors = {store: p99(times, name) for store, (name, _) in FLOORS.items()}
    rows = [[name, *cells(found, [*floors.values()])] for name, found in times.items()]
    return table(["submit to start, ms", "p50", "p99", *(f"p99 / floor of {store}" for store in floors)], rows)


def aims(times: Times) -> list[Aim]:
    return [
        Aim(
            what=f"p99 of {_ours(store)}, against {name}",
            ratio=over(p99(times, _ours(store)), p99(times, name)),
            most=1.5,
        )
        for store, (name, _) in FLOORS.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
