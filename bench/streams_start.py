"""How soon a job begins when the replica that took it is not the one at which the worker waits."""

import argparse
from collections.abc import Mapping

from bench.aims import Aim, over
from bench.asked import chosen, measured, say, versions_of
from bench.databases import mariadb, postgres
from bench.delays import Times, cells, p99
from bench.ourselves import Ourselves
from bench.peers.catalogue import redis
from bench.peers.figures import table
from bench.peers.peer import Peer

FLOOR = "streams alone, one by one"
ALONE = "Herdsman, MariaDB, one replica"
POLLED = "Herdsman, MariaDB, two replicas, without Redis"
HINTED = "Herdsman, MariaDB, two replicas, with Redis"
NOTIFIED = "Herdsman, PostgreSQL, two replicas, without Redis"
PEERS = ("celery", "dramatiq", "arq, polling every ms", "taskiq, streams")
PAUSE_S = 0.1
# Who polls must be met at any point of the interval, and what is held against it in the same way.
PAUSES: Mapping[str, float] = dict.fromkeys((POLLED, HINTED, "dramatiq"), 1.0)
HEAD = """## How soon

Milliseconds from before a job is submitted until the first line of its handler, on an idle worker: {samples:,} jobs, one
after the other. Where there are two replicas, one takes the jobs and the worker waits at the other. MariaDB cannot
tell the second one; PostgreSQL can.

"""


def measure(asked: argparse.Namespace, samples: int) -> Times:
    say("how soon they begin")
    everyone = chosen(asked, _ours(), (FLOOR, *PEERS))
    return measured(everyone, versions_of(everyone), lambda peer: _latency(peer, samples))


def _ours() -> list[Ourselves]:
    return [
        Ourselves(name=ALONE, place=mariadb),
        Ourselves(name=POLLED, place=mariadb, replicas=2),
        Ourselves(name=HINTED, place=mariadb, replicas=2, redis=redis),
        Ourselves(name=NOTIFIED, place=postgres, replicas=2),
    ]


def _latency(peer: Peer, samples: int) -> list[float]:
    return peer.latency(samples, PAUSES.get(peer.name, PAUSE_S))


def section(times: Times, samples: int) -> str:
    against = [name for name in (FLOOR, ALONE, POLLED) if times.get(name)]
    bases = [p99(times, name) for name in against]
    rows = [[name, *cells(times[name], bases)] for name in times]
    heads = ["submit to start, ms", "p50", "p99", *(f"p99 / {name}" for name in against)]
    return HEAD.format(samples=samples) + table(heads, rows)


def aims(times: Times) -> list[Aim]:
    """With Redis a worker at another replica waits far less than for a poll, and little longer than at the same."""
    return [
        Aim(what=f"p99 of {HINTED}, against {other}", ratio=over(hinted, p99(times, other)), most=most)
        for hinted in [p99(times, HINTED)]
        for other, most in ((POLLED, 0.25), (ALONE, 1.5))
    ]
