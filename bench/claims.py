"""Measures an API at which thousands of workers wait for jobs: what the waiting costs, and how soon a job has one.

Run it with `python -m bench.claims`.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.aims import Aim, conclude, surroundings, verdict
from bench.asked import parser, say
from bench.crowd import Crowd, Seen
from bench.databases import opened, postgres, sqlite
from bench.machine import Watch, cpu_s
from bench.peers.figures import percentile, table
from bench.running import Server, a_server
from herdsman.access.authenticator import Keyring, load_pepper
from herdsman.access.commands import admit_worker
from herdsman.access.rules import Caller, Role
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.ids import WorkerId
from herdsman.states import Reason, WorkerStatus
from herdsman.worker.supervisor import Supervisor

STORES = {"SQLite": sqlite, "PostgreSQL": postgres}
WAITS_S = (Supervisor.wait.total_seconds(), 60.0)
SETTLING_S = 10.0
PATIENCE_S = 60.0
# Nobody beats here: it is the waiting that is measured. The control loop looks as seldom as in production.
SETTINGS = {"HEARTBEAT_TIMEOUT_SEC": "3600", "GPU_IDLE_TIMEOUT_SEC": "3600", "ORCHESTRATOR_POLL_SEC": "30"}
SPARE_FILES = 500
HEAD = """# Workers that wait for jobs

{workers:,} workers wait at one API, each for as long as the first column says; then it is answered, and asks again.

"""
NOTES = (
    (
        "CPU of the server's process, in percent of one core: while there is nothing to do, and while {rate:g} jobs a second"
        " come. The database and the workers share the machine."
    ),
    (
        "The times are from before a job is submitted until a worker has it, over {jobs:,} jobs; `left` is how many of"
        " them had none a minute after the last came: the server and its clients, on two cores, could not keep up."
    ),
    "The heartbeats of so many workers, which are requests of their own, are left out.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    workers: int
    jobs: int
    rate: float
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    name: str
    idle: float
    busy: float
    asked: float
    left: int
    """Jobs that still had no worker long after the last one had come."""
    seen: Seen

    def row(self) -> list[str]:
        times = [f"{1e3 * percentile(self.seen.times, share):.1f}" for share in (0.5, 0.99)]
        rates = [f"{self.asked:,.0f}", f"{self.idle:.0%}", f"{self.busy:.0%}"]
        return [self.name, *rates, *times, str(self.left), str(self.seen.errors)]


def main() -> int:
    asked, watch = _asked(), Watch()
    effort = Effort(
        workers=asked.workers or (200 if asked.quick else 5_000),
        jobs=asked.jobs or (50 if asked.quick else 1_000),
        rate=asked.rate,
        idle_s=5 if asked.quick else 30,
    )
    _allow_files(2 * effort.workers + SPARE_FILES)
    found = [_measure(store, wait_s, effort) for store, wait_s in product(STORES, WAITS_S)]
    heads = ["store, wait", "asked/s", "CPU idle", "CPU busy", "p50, ms", "p99, ms", "left", "errors"]
    notes = [note.format(rate=effort.rate, jobs=effort.jobs) for note in NOTES]
    rows, sought = table(heads, [each.row() for each in found]), aims(found)
    parts = (surroundings(watch, {}, notes), rows, verdict(sought))
    text = HEAD.format(workers=effort.workers) + "\n\n".join(parts) + "\n"
    return conclude(asked, "claims", text, sought, watch)


def aims(found: Sequence[Found]) -> list[Aim]:
    """Against a fifth of a core, and against 50 ms: limits, not peers."""
    idle = [
        Aim(what=f"CPU of {each.name}, idle, against a fifth of a core", ratio=each.idle / 0.2, most=1.0)
        for each in found
    ]
    late = [
        Aim(
            what=f"p99 of {each.name}, against 50 ms",
            ratio=percentile(each.seen.times, 0.99) / 0.05,
            most=1.0,
        )
        for each in found
        if each.seen.times
    ]
    return [*idle, *late]


def _measure(store: str, wait_s: float, effort: Effort) -> Found:
    name = f"{store}, {wait_s:g} s"
    say(name)
    with TemporaryDirectory(prefix="herdsman-bench-") as directory, STORES[store](["bench"]) as place:
        tokens = _enlist(place.urls["bench"], Path(directory), effort.workers)
        with (
            a_server(place.urls["bench"], Path(directory), _settings(effort)) as server,
            Crowd(server.url, server.token, tokens, wait_s) as crowd,
        ):
            crowd.attend(SETTLING_S)
            crowd.seen = Seen()
            idle = _cpu(server, lambda: crowd.attend(effort.idle_s))
            waits, crowd.seen = crowd.seen.waits, Seen()
            busy = _cpu(server, lambda: _keep_busy(crowd, effort))
            asked, left = waits / effort.idle_s, crowd.open_jobs
            return Found(name=name, idle=idle, busy=busy, asked=asked, left=left, seen=crowd.seen)


def _settings(effort: Effort) -> dict[str, str]:
    return {**SETTINGS, "MIN_ACTIVE_GPUS": str(effort.workers)}


def _keep_busy(crowd: Crowd, effort: Effort) -> None:
    began = time.monotonic()
    for number in range(effort.jobs):
        crowd.attend(began + number / effort.rate - time.monotonic())
        crowd.submit()
    deadline = time.monotonic() + PATIENCE_S
    while crowd.open_jobs and time.monotonic() < deadline:
        crowd.attend(0.01)


def _cpu(server: Server, work: Callable[[], None]) -> float:
    """The share of one core that its process used meanwhile."""
    before, began = cpu_s(server.pid), time.monotonic()
    work()
    return (cpu_s(server.pid) - before) / (time.monotonic() - began)


def _enlist(url: str, directory: Path, count: int) -> Sequence[str]:
    """Workers that are active, and the token of each."""
    keyring = Keyring(pepper=load_pepper(None, directory / "pepper"))
    boss = Caller(token_id="bench", role=Role.ADMIN)
    tokens: list[str] = []
    with opened(url) as services:
        for worker_id in (WorkerId(f"gpu-{number:06}") for number in range(count)):
            register_worker(services, worker_id)
            move_worker(services, worker_id, WorkerStatus.ACTIVE, Reason.READY)
            tokens.append(admit_worker(services, keyring, boss, worker_id, "incarnation").secret)
    return tokens


def _allow_files(wanted: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and wanted > most:
        sys.exit(f"{wanted} open files are needed, and {most} are allowed: raise it with ulimit -Hn, or ask for fewer")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _asked() -> argparse.Namespace:
    made = parser(__doc__)
    made.add_argument("--workers", type=int, help="how many wait")
    made.add_argument("--jobs", type=int, help="how many come while they wait")
    made.add_argument("--rate", type=float, default=20, help="so many jobs a second")
    return made.parse_args()


if __name__ == "__main__":
    sys.exit(main())
