"""Processes as instances: how one is started, found again after a restart of ours, and ended.

What was started is kept in files, so that a control plane that starts anew finds its workers again.

A file is there before its process is, and is replaced as a whole. It need not survive the machine's own crash,
which no process survives either.
"""

import fcntl
import importlib
import os
import re
import signal
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog
from pydantic import SecretStr, TypeAdapter, ValidationError

from herdsman.errors import CapacityUnavailable, InvalidSettings, ProviderRejected, ProviderUnavailable
from herdsman.fleet.model import LOCAL_NAME, Instance, InstanceRef, InstanceStatus, SpawnRequest, process_name
from herdsman.ports import Clock
from herdsman.providers.local import processes
from herdsman.providers.local.processes import Identity
from herdsman.providers.registry import Naming

_DRIVER = Path("/proc/driver/nvidia/gpus")
WORKER = (sys.executable, "-m", "herdsman", "worker")
LONGEST_NAME = 128
MOST_LOGS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_PATIENCE = timedelta(seconds=10)
_POLL = timedelta(milliseconds=20)
_TAIL = 256 * 1024
log = structlog.get_logger()


def count_gpus() -> int:
    """By NVIDIA's library where it is installed, else by what the driver shows."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return 0
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return 0
    finally:
        nvml.nvmlShutdown()


def next_gpu(count: int, used: Iterable[int], last: int | None) -> int | None:
    """The next free one after the last that was given, so that all get their share; None when all are taken."""
    taken = set(used)
    first = 0 if last is None else last + 1
    turn = (index % count for index in range(first, first + count))
    return next((index for index in turn if index not in taken), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    state_dir: Path
    """Remembers what was started; two deployments may share it."""
    deployment: str = "local"
    name_prefix: str = "gpu"
    command: tuple[str, ...] = WORKER
    environment: Mapping[str, SecretStr] = field(default_factory=lambda: MappingProxyType({}))
    """All that a worker gets besides what it is asked to have: nothing is inherited."""
    fake_gpus: int = 0
    """0 counts the real ones."""
    kill_after: timedelta = timedelta(seconds=30)
    """How long after it was asked to end a process is killed."""

    def __post_init__(self) -> None:
        _ = self.naming
        if not self.command:
            raise InvalidSettings("the command that starts a local worker is empty")
        if self.fake_gpus < 0:
            raise InvalidSettings(f"there cannot be {self.fake_gpus} fake GPUs")
        if not Path("/proc/self/stat").exists():
            raise InvalidSettings("local workers need Linux and its /proc")

    @property
    def naming(self) -> Naming:
        return Naming(self.name_prefix, self.deployment)

    @property
    def directory(self) -> Path:
        return self.state_dir / self.deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    name: str
    gpu: int
    created_at: datetime
    process: Identity | None = None
    """None from just before its start until just after."""
    end_asked: float | None = None
    """On the monotonic clock, which all processes of one boot share."""


_RECORD = TypeAdapter(Record)


class State:
    """The files of one deployment. Every use of the records is under the lock."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._records = directory / "instances"
        self._logs = directory / "logs"
        self._lock = directory / "lock"
        self._clock = clock

    @contextmanager
    def locked(self) -> Generator[None]:
        """Alone on this machine, and with every error of the disk made ours."""
        try:
            for directory in (self._records, self._logs):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._lock.open("a") as file:
                deadline = self._clock.monotonic() + _PATIENCE.total_seconds()
                while True:
                    try:
                        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError as error:
                        if self._clock.monotonic() > deadline:
                            said = "another process holds the state of local workers"
                            raise ProviderUnavailable(said) from error
                        self._clock.sleep(_POLL)
                yield
        except OSError as error:
            raise ProviderUnavailable(f"the state of local workers cannot be used: {error}") from error

    def records(self) -> list[Record]:
        """All of them, or an error."""
        found = [self._read(path) for path in sorted(self._records.glob("*.json"))]
        return [record for record in found if record is not None]

    def find(self, name: str) -> Record | None:
        return self._read(self._path(name)) if is_name(name) else None

    def write(self, record: Record) -> None:
        path = self._path(record.name)
        pending = path.with_suffix(".pending")
        pending.write_bytes(_RECORD.dump_json(record))
        pending.rename(path)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int) -> list[str]:
        """The log outlives its process: that is when it is wanted most."""
        if lines < 1 or not is_name(name):
            return []
        try:
            with self.log_of(name).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ProviderUnavailable(f"the log of {name} cannot be read: {error}") from error

    def prune_logs(self) -> None:
        kept = {self.log_of(record.name) for record in self.records()}
        old = sorted(set(self._logs.glob("*.log")) - kept, key=lambda path: path.stat().st_mtime)
        for path in old[: max(0, len(old) - MOST_LOGS)]:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _read(self, path: Path) -> Record | None:
        try:
            return _RECORD.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise ProviderUnavailable(f"{path} is not what we wrote: {error}") from error


def is_name(text: str) -> bool:
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


class LocalProvider:
    """The ref of an instance is its name. A process that has ended is gone, whoever ended it."""

    def __init__(self, options: LocalOptions, clock: Clock) -> None:
        self.options = options
        self._naming = options.naming
        self._clock = clock
        self.state = State(options.directory, clock)

    @property
    def name(self) -> str:
        return "local"

    def spawn(self, request: SpawnRequest) -> Instance:
        name = request.name
        if not self._naming.owns(name) or not is_name(name):
            raise ProviderRejected(f"{name!r} is no name of this deployment with {LONGEST_NAME} characters")
        with self.state.locked():
            alive = self._living()
            known = next((record for record in alive if record.name == name), None)
            if known is not None:
                return _instance(known)
            self.state.prune_logs()
            record = Record(name=name, gpu=self._free_gpu(alive), created_at=datetime.now(UTC))
            return _instance(self._start(record, request.environment))

    def find(self, ref: InstanceRef) -> Instance | None:
        with self.state.locked():
            found = self._find(ref)
        return None if found is None else _instance(found)

    def terminate(self, ref: InstanceRef) -> None:
        """Asked now, killed by a later call of any kind if it does not obey in time. Asked again, it may not tarry."""
        with self.state.locked():
            found = self._find(ref)
            if found is None or found.process is None:
                return
            if found.end_asked is None:
                self.state.write(replace(found, end_asked=self._clock.monotonic()))
            processes.ask_to_end(found.process)

    def list_instances(self) -> Sequence[Instance]:
        with self.state.locked():
            return [_instance(record) for record in self._living()]

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        return self.state.tail(ref, lines)

    def _find(self, ref: InstanceRef) -> Record | None:
        record = self.state.find(ref)
        return None if record is None else self._check(record)

    def _living(self) -> list[Record]:
        return [found for record in self.state.records() if (found := self._check(record)) is not None]

    def _check(self, record: Record) -> Record | None:
        """The record as it is now; None, and forgotten, when nothing of its process is left."""
        if record.process is None:
            # Whoever started it did not live to write its id down; under the lock nobody is at it just now.
            marker = f"{LOCAL_NAME}={record.name}"
            record = replace(record, process=processes.find_marked(marker, process_name(record.name)))
            if record.process is not None:
                self.state.write(record)
        who = record.process
        if who is not None and processes.is_alive(who):
            waited = 0.0 if record.end_asked is None else self._clock.monotonic() - record.end_asked
            if waited > self.options.kill_after.total_seconds():
                log.warning("local.killed", name=record.name, pid=who.pid)
                processes.kill_family(who)
            return record
        if who is not None:
            processes.kill_family(who)  # what a killed worker left behind must not go on
            processes.reap(who)
            if processes.family(who):
                return record
        self.state.remove(record.name)
        return None

    def _free_gpu(self, alive: Sequence[Record]) -> int:
        count = self.options.fake_gpus or count_gpus()
        if count == 0:
            raise CapacityUnavailable(
                "this machine has no GPU, and local workers have one each: start one without manually (herdsman worker),"
                " or simulate some (FAKE_GPUS)"
            )
        last = max(alive, key=lambda record: record.created_at, default=None)
        gpu = next_gpu(count, [record.gpu for record in alive], None if last is None else last.gpu)
        if gpu is None:
            raise CapacityUnavailable(f"all {count} GPUs of this machine have their workers")
        return gpu

    def _start(self, record: Record, asked: Mapping[str, str]) -> Record:
        """The file first, so that a process that runs is one that is known."""
        self.state.write(record)
        try:
            given = {name: value.get_secret_value() for name, value in self.options.environment.items()}
            fake = {"FAKE_GPUS": "1"} if self.options.fake_gpus else {}
            gpu = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(record.gpu)}
            logged = (str(self.state.log_of(record.name)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            # A session of its own, so that no Ctrl-C of ours reaches it; its id is raw: it may outlive us.
            pid = os.posix_spawnp(
                self.options.command[0],
                self.options.command,
                {**given, "PYTHONUNBUFFERED": "1", **gpu, **fake, **asked, LOCAL_NAME: record.name},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, *logged),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP],
            )
        except OSError as error:
            self.state.remove(record.name)
            raise ProviderRejected(f"{self.options.command[0]} cannot be started: {error}") from error
        who = processes.identify(pid)
        assert who is not None, "a child that was not reaped is gone"
        started = replace(record, process=who)
        try:
            self.state.write(started)
        except OSError as error:
            processes.kill_family(who)
            os.waitpid(who.pid, 0)
            self.state.remove(record.name)
            raise ProviderUnavailable(f"{record.name} could not be written down: {error}") from error
        log.info("local.started", name=record.name, pid=pid, gpu=record.gpu)
        return started


def _instance(record: Record) -> Instance:
    return Instance(
        ref=InstanceRef(record.name),
        name=record.name,
        status=InstanceStatus.STARTING if record.process is None else InstanceStatus.RUNNING,
        gpu_type="local",
        gpu_count=1,
        created_at=record.created_at,
    )
