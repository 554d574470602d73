"""Measures jobs that go through Herdsman with Redis beside it: how many a second, and how soon one begins elsewhere.

Run it with `python -m bench.streams`. In the same run: the streams of Redis alone, Herdsman without Redis, and other
job queues on Redis.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median

from bench import streams_start
from bench.aims import Aim, conclude, over, surroundings, verdict
from bench.asked import chosen, measured, parser, say, versions_of, with_peers
from bench.databases import postgres, sqlite
from bench.machine import Watch
from bench.ourselves import Ourselves
from bench.peers.catalogue import TOGETHER, redis
from bench.peers.figures import ratio, table
from bench.peers.peer import Passage, Peer
from tests.support.servers.server import version_of

STORES = {"SQLite": sqlite, "PostgreSQL": postgres}
REDIS = {"with Redis": redis, "without Redis": None}
BATCHES = (1, TOGETHER)
SERVERS = {"Redis": "redis-server", "PostgreSQL": "postgres", "MariaDB": "mariadbd"}
FLOORS = {1: "streams alone, one by one", TOGETHER: f"streams alone, by {TOGETHER}"}
TUNED = "dramatiq, polling every ms, prefetch 100"
PEERS = ("celery", "dramatiq", TUNED, "arq, polling every ms", "taskiq, streams", "taskiq, lists")
RIVALS = ("celery", "dramatiq", "arq, polling every ms", "taskiq, streams")
"""Each of the four once: as it comes but for arq, whose worker starts two jobs in a second then."""
HEAD = """# Through the streams of Redis

## How many

Jobs that do nothing, sent as fast as one process can to one worker process that waits for them: so many a second
got through, from before the first submission until the last was done. Medians of {rounds} rounds of {jobs:,} jobs.

"""
NOTES = (
    (
        "Herdsman: submitted over HTTP by its client and stored; the worker takes them over HTTP, and runs them in its"
        f" handler's process. By {TOGETHER}: so many in one request, and in one call of the handler."
    ),
    (
        "With Redis an entry of a stream names each job, once it is stored; `hinted` is how many entries there were for a"
        " job. The worker waits at the replica that took the job, so it needs none of them: this is what they cost."
    ),
    (
        f"The streams alone: XADD, XREADGROUP and XACK, each waiting for its answer; or XADD in pipelines of {TOGETHER},"
        f" and up to {TOGETHER} entries read and confirmed together. Nothing is stored elsewhere, and nothing is run."
    ),
    "CPU is that of the API's process; the database, Redis, the worker and the client use their own.",
    "Peers keep no results. They run one job at a time in one process, and their clients submit one at a time.",
    "PostgreSQL and SQLite have every commit on the disk. Redis is as it comes: a crash may lose a minute of jobs.",
    "One after the other, in turns; all processes share the machine.",
)

HEADS = ("jobs a second", "through", "submitted", "hinted", "CPU, ms/job")
Passages = Mapping[str, Sequence[Passage]]


def main() -> int:
    made = with_peers(parser(__doc__))
    made.add_argument("--jobs", type=int, help="how many are sent through")
    made.add_argument("--rounds", type=int, help="more rounds, less noise")
    made.add_argument("--samples", type=int, help="how many are submitted to see when they begin")
    made.add_argument("--note", action="append", default=[], help="what else is to be said of the machine")
    asked = made.parse_args()
    jobs = asked.jobs or (200 if asked.quick else 10_000)
    rounds, samples = asked.rounds or (1 if asked.quick else 3), asked.samples or (5 if asked.quick else 200)
    watch = Watch()
    everyone = chosen(asked, _ours(), (*FLOORS.values(), *PEERS))
    versions = versions_of(everyone)
    found = _passages(everyone, versions, jobs, rounds)
    starts = streams_start.measure(asked, samples)
    sought = [*aims(found), *streams_start.aims(starts)]
    parts = (
        surroundings(watch, _told(versions), (*NOTES, *asked.note)),
        _table(found),
        streams_start.section(starts, samples),
        verdict(sought),
    )
    text = HEAD.format(jobs=jobs, rounds=rounds) + "\n\n".join(parts) + "\n"
    return conclude(asked, "streams", text, sought, watch)


def _told(versions: Mapping[str, str]) -> Mapping[str, str]:
    """Of the streams alone it is that of their client."""
    servers = {name: version_of(program) for name, program in SERVERS.items()}
    floor = FLOORS[1]
    clients = {"redis-py": versions[floor]} if floor in versions else {}
    return {**servers, **clients, **{name: versions[name] for name in PEERS if name in versions}}


def name_of(store: str, streams: str, batch: int) -> str:
    return f"Herdsman, {store}, {streams}, {'one by one' if batch == 1 else f'by {batch}'}"


def _ours() -> list[Ourselves]:
    return [
        Ourselves(name=name_of(store, streams, batch), place=STORES[store], redis=REDIS[streams], batch=batch)
        for store, batch, streams in product(STORES, BATCHES, REDIS)
    ]


def _passages(everyone: Sequence[Peer], versions: Mapping[str, str], jobs: int, rounds: int) -> Passages:
    """None at all of a peer that is not installed."""
    found = defaultdict[str, list[Passage]](list)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, passage in measured(everyone, versions, lambda peer: peer.through(jobs)).items():
            found[name] += [] if passage is None else [passage]
    return found


def _table(found: Passages) -> str:
    against = [name for name in (*FLOORS.values(), *PEERS) if found.get(name)]
    rows = [[name, *_cells(passages, [found[each] for each in against])] for name, passages in found.items()]
    return table([*HEADS, *(f"/ {name}" for name in against)], rows)


def _cells(passages: Sequence[Passage], against: Sequence[Sequence[Passage]]) -> list[str]:
    rate = _rate(passages)
    if rate is None:
        return ["not installed", "", "", "", *("" for _ in against)]
    hinted, cpu = _hinted(passages), _cpu(passages)
    return [
        f"{rate:,.0f}",
        f"{median(each.submitted for each in passages):,.0f}",
        "" if hinted is None else f"{hinted:.2f}",
        "" if cpu is None else f"{1e3 * cpu:.2f}",
        *(ratio(rate, _rate(theirs) or 0) for theirs in against),
    ]


def _rate(passages: Sequence[Passage]) -> float | None:
    return median(each.through for each in passages) if passages else None


def _hinted(passages: Sequence[Passage]) -> float | None:
    found = [each.hinted for each in passages if each.hinted is not None]
    return median(found) if found else None


def _cpu(passages: Sequence[Passage]) -> float | None:
    found = [each.cpu_s for each in passages if each.cpu_s is not None]
    return median(found) if found else None


def aims(found: Passages) -> list[Aim]:
    """That the streams cost little, that we stay within a tenth of them, and that no peer is faster."""
    cost = [
        _aim(found, name_of(store, "with Redis", batch), name_of(store, "without Redis", batch), least=0.9)
        for store, batch in product(STORES, BATCHES)
    ]
    work = [_work_aim(found, store, batch) for store, batch in product(STORES, BATCHES)]
    floor = [
        _aim(found, name_of(store, "with Redis", batch), FLOORS[batch], least=0.1)
        for store, batch in product(STORES, BATCHES)
    ]
    rivals = [
        _aim(found, name_of("PostgreSQL", "with Redis", batch), rival, least=1.0)
        for batch, rival in product(BATCHES, RIVALS)
    ]
    return [*cost, *work, *floor, *rivals]


def _aim(found: Passages, ours: str, theirs: str, *, least: float) -> Aim:
    rates = [_rate(found.get(name, ())) for name in (ours, theirs)]
    return Aim(what=f"{ours}, against {theirs}", ratio=over(*rates), least=least)


def _work_aim(found: Passages, store: str, batch: int) -> Aim:
    """Other work on the machine changes this less than it changes the rates."""
    ours, theirs = (name_of(store, streams, batch) for streams in REDIS)
    used = [_cpu(found.get(name, ())) for name in (ours, theirs)]
    return Aim(what=f"CPU of {ours}, against {theirs}", ratio=over(*used), most=1.1)


if __name__ == "__main__":
    sys.exit(main())
