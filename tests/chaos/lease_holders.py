"""Processes that hold leases as real ones would, and a node that measures what they really use."""

import json
import mmap
import random
import signal
import struct
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from threading import Event

import structlog

from herdsman.client import Client, LeaseDenied
from herdsman.client.lease import Lost
from herdsman.context import Services
from herdsman.db.connection import Database
from herdsman.errors import Gone, HerdsmanError
from herdsman.fleet.model import GpuDevice
from herdsman.jobs.model import JobPolicy
from herdsman.leases.commands import grant_lease, keep_lease, release_lease, report_gpus
from herdsman.leases.rules import Lease, LeasePolicy
from herdsman.ports import SystemClock
from herdsman.testing.simulation.checks.history import Use
from herdsman.testing.simulation.checks.lease_checks import use_of
from herdsman.wire import new_job_id, new_lease_token
from tests.support.gpus import asked

GPUS = 8
TOTAL_MB = 24_000
CELL = struct.Struct("<q")
TTL_S = 2.0
POLICY = LeasePolicy(tolerance_mb=0, empty_within=timedelta(seconds=1), margin=timedelta(seconds=0.5))
REPORT_S = 0.03
SHARE_OF_LONG = 0.02
SHARE_OF_FROZEN = 0.004
"""So many stand still past the end of their lease, without being stopped from outside."""


@dataclass(frozen=True)
class LeaseCluster:
    """Where everybody finds everything."""

    database_url: str
    directory: Path
    api_url: str = ""
    token: str = ""

    @property
    def ledger(self) -> Path:
        return self.directory / "memory"

    def story(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"


class Ledger:
    """The memory that is really in use: a row for each holder, so that nobody writes into another's."""

    def __init__(self, path: Path, holders: int) -> None:
        size = holders * GPUS * CELL.size
        if not path.exists() or path.stat().st_size < size:
            path.write_bytes(bytes(size))
        self._holders = holders
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), size)

    def take(self, holder: int, gpu: int, memory_mb: int) -> None:
        CELL.pack_into(self._map, (holder * GPUS + gpu) * CELL.size, memory_mb)

    def used(self, gpu: int) -> int:
        places = [(holder * GPUS + gpu) * CELL.size for holder in range(self._holders)]
        return sum(CELL.unpack_from(self._map, place)[0] for place in places)


@contextmanager
def services_at(url: str) -> Generator[Services]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    database = Database(url, clock=SystemClock(), pool_size=2)
    try:
        yield Services(database, JobPolicy(), new_job_id, leasing=POLICY)
    finally:
        database.close()


def node(cluster: LeaseCluster, everybody: int) -> None:
    """Measures again and again; the most that was ever found in use is written down at the end."""
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    ledger, most = Ledger(cluster.ledger, everybody), 0
    with services_at(cluster.database_url) as services:
        while not stopping.wait(REPORT_S):
            read = time.monotonic()
            devices = [_device(gpu, ledger.used(gpu)) for gpu in range(GPUS)]
            most = max(most, *(each.used_mb for each in devices))
            with suppress(HerdsmanError):
                age = timedelta(seconds=time.monotonic() - read)
                report_gpus(services, "node", devices, age)
    cluster.story("node").write_text(json.dumps({"most": most}))


def _device(index: int, used_mb: int) -> GpuDevice:
    # What is over the limit must be seen by the test, not cut off.
    return GpuDevice(index=index, uuid=f"GPU-{index}", name="Fake", total_mb=TOTAL_MB, used_mb=used_mb)


def holders(cluster: LeaseCluster, numbers: Sequence[int], everybody: int, grants: int) -> None:
    """Several in one process, which therefore stand still together; they ask as the routes do."""
    with services_at(cluster.database_url) as services, ThreadPoolExecutor(len(numbers)) as threads:
        for done in [threads.submit(_holder, services, cluster, each, everybody, grants) for each in numbers]:
            done.result()


def _holder(services: Services, cluster: LeaseCluster, number: int, everybody: int, grants: int) -> None:
    chance, ledger = random.Random(number), Ledger(cluster.ledger, everybody)
    with cluster.story(f"holder-{number}").open("w") as story:
        left = grants
        while left:
            use = None
            with suppress(HerdsmanError):
                use = _one(services, chance, ledger, number)
            if use is None:
                # The more there are, the longer each waits, or they only hear that there is no room.
                time.sleep(0.01 + chance.random() * 0.006 * everybody)
                continue
            story.write(json.dumps(asdict(use)) + "\n")
            left -= 1


def _one(services: Services, chance: random.Random, ledger: Ledger, number: int) -> Use | None:
    wish = asked(_memory(chance), exclusive=chance.random() < 0.1, agent=f"agent-{number % 4}", ttl_s=TTL_S)
    sent = time.monotonic()
    lease = grant_lease(services, wish, new_token=new_lease_token, who="chaos")
    if not isinstance(lease, Lease):
        return None
    lost = Lost(time.monotonic, sent + TTL_S - POLICY.margin_of(timedelta(seconds=TTL_S)).total_seconds())
    return replace(_hold(services, chance, ledger, number, lease, lost), asked=sent)


def _hold(services: Services, chance: random.Random, ledger: Ledger, number: int, lease: Lease, lost: Lost) -> Use:
    """What it may not use any more it has stopped using; then it frees the memory, and says so."""
    began = ended = time.monotonic()
    gpu, late, beaten, heard = lease.gpu_index or 0, "", began, began
    if not lost.is_set():
        ledger.take(number, gpu, lease.memory_mb)
    long = chance.random() < SHARE_OF_LONG
    until = began + (chance.random() * 2 * TTL_S if long else chance.random() * 0.02)
    while (now := time.monotonic()) < until and not lost.is_set():
        ended = max(ended, now)
        if now - beaten > TTL_S / 3:
            beaten = now
            with suppress(HerdsmanError):
                keep_lease(services, lease.token)
                lost.move(now + TTL_S - POLICY.margin_of(timedelta(seconds=TTL_S)).total_seconds())
            heard = time.monotonic()
        time.sleep(0.002)
    if chance.random() < SHARE_OF_FROZEN:
        time.sleep(TTL_S * (1.2 + chance.random()))  # it does not know how long
    deadline = lost.deadline
    ledger.take(number, gpu, 0)
    # The server began to count before its last answer was heard, so by then its time is surely over.
    if time.monotonic() > heard + TTL_S:
        late = _late_beat(services, lease)
    with suppress(HerdsmanError):
        release_lease(services, lease.token, who="chaos")
    return use_of(lease, began=began, ended=ended, until=max(deadline, began), late=late)


def _late_beat(services: Services, lease: Lease) -> str:
    try:
        keep_lease(services, lease.token)
    except Gone:
        return "gone"
    except HerdsmanError:
        return ""
    return "kept"


def http_holder(cluster: LeaseCluster, number: int, everybody: int, grants: int) -> None:
    """The same with the SDK, as a program of others would."""
    chance, ledger = random.Random(number), Ledger(cluster.ledger, everybody)
    with (
        Client(cluster.api_url, cluster.token, patience=5) as client,
        cluster.story(f"http-{number}").open("w") as story,
    ):
        left = grants
        while left:
            try:
                use = _with_sdk(client, chance, ledger, number)
            except LeaseDenied:
                continue
            except HerdsmanError:
                time.sleep(0.05)
                continue
            story.write(json.dumps(asdict(use)) + "\n")
            left -= 1


def _with_sdk(client: Client, chance: random.Random, ledger: Ledger, number: int) -> Use:
    exclusive = chance.random() < 0.1
    memory = _memory(chance)
    asked_at = time.monotonic()
    with client.lease(memory_mb=memory, ttl=TTL_S, wait=1, exclusive=exclusive, agent="http") as lease:
        began = ended = time.monotonic()
        gpu = lease.gpu_index or 0
        if not lease.lost.is_set():
            ledger.take(number, gpu, memory)
        until = began + (chance.random() * 2 * TTL_S if chance.random() < 0.1 else 0.01)
        while (now := time.monotonic()) < until and not lease.lost.is_set():
            ended = now
            time.sleep(0.002)
        deadline = lease.lost.deadline
        ledger.take(number, gpu, 0)
        return Use(
            token=lease.token,
            gpu=lease.gpu_uuid or "",
            seq=lease.seq,
            memory_mb=memory,
            exclusive=exclusive,
            asked=asked_at,
            began=began,
            ended=ended,
            until=max(deadline, began),
        )


def _memory(chance: random.Random) -> int:
    return chance.choice((1000, 2000, 4000, 8000, 12_000, 24_000))
