"""Processes as instances: how one is started, found again after a restart of ours, and ended."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from herdsman.core.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable
from herdsman.core.instances import (
    LOCAL_NAME,
    Instance,
    InstanceRef,
    InstanceState,
    SpawnRequest,
    process_name,
)
from herdsman.ports import Clock
from herdsman.providers.local import processes
from herdsman.providers.local.gpus import count_gpus, next_gpu
from herdsman.providers.local.options import LocalOptions
from herdsman.providers.local.processes import Identity
from herdsman.providers.local.state import LONGEST_NAME, Record, State, is_name

log = structlog.get_logger()

# Finds a process whose id we had no time to write down; no setting, so it has no prefix of ours.


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
            record = self.state.find(ref)
            seen = None if record is None else self._check(record)
        return None if seen is None else _instance(seen)

    def terminate(self, ref: InstanceRef) -> None:
        """Asked now, killed by a later call of any kind if it does not obey in time. Asked again, it may not tarry."""
        with self.state.locked():
            record = self.state.find(ref)
            seen = None if record is None else self._check(record)
            if seen is None or seen.process is None:
                return
            if seen.end_asked is None:
                self.state.write(replace(seen, end_asked=self._clock.monotonic()))
            processes.ask_to_end(seen.process)

    def list_instances(self) -> Sequence[Instance]:
        with self.state.locked():
            return [_instance(record) for record in self._living()]

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        return self.state.tail(ref, lines)

    def _living(self) -> list[Record]:
        seen = [self._check(record) for record in self.state.records()]
        return [record for record in seen if record is not None]

    def _check(self, record: Record) -> Record | None:
        """The record as it is now; None, and forgotten, when nothing of its process is left."""
        record = self._adopt(record)
        who = record.process
        if who is not None and processes.is_alive(who):
            if self._overdue(record):
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

    def _adopt(self, record: Record) -> Record:
        """Whoever started it did not live to write its id down; under the lock nobody is at it just now."""
        if record.process is not None:
            return record
        found = replace(
            record, process=processes.find_marked(f"{LOCAL_NAME}={record.name}", process_name(record.name))
        )
        if found.process is not None:
            self.state.write(found)
        return found

    def _overdue(self, record: Record) -> bool:
        waited = 0.0 if record.end_asked is None else self._clock.monotonic() - record.end_asked
        return waited > self.options.kill_after.total_seconds()

    def _free_gpu(self, alive: Sequence[Record]) -> int:
        count = self.options.fake_gpus or count_gpus()
        if count == 0:
            raise CapacityUnavailable(
                "this machine has no GPU, and local workers have one each: start one without by hand (herdsman worker),"
                " or pretend that there are some (FAKE_GPUS)"
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
            pid = self._run(record, self._environment(record, asked))
        except OSError as error:
            self.state.remove(record.name)
            raise ProviderRejected(f"{self.options.command[0]} cannot be started: {error}") from error
        who = processes.identify(pid)
        assert who is not None, "a child that was not reaped is gone"
        started = replace(record, process=who)
        try:
            self.state.write(started)
        except OSError as error:
            self._undo(record, who)
            raise ProviderUnavailable(f"{record.name} could not be written down: {error}") from error
        log.info("local.started", name=record.name, pid=pid, gpu=record.gpu)
        return started

    def _run(self, record: Record, environment: Mapping[str, str]) -> int:
        """A session of its own, so that no Ctrl-C of ours reaches it; its id is raw: it may outlive us."""
        logged = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawnp(
            self.options.command[0],
            self.options.command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.state.log_of(record.name)), logged, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP],
        )

    def _undo(self, record: Record, who: Identity) -> None:
        processes.kill_family(who)
        os.waitpid(who.pid, 0)
        self.state.remove(record.name)

    def _environment(self, record: Record, asked: Mapping[str, str]) -> dict[str, str]:
        given = {name: value.get_secret_value() for name, value in self.options.environment.items()}
        fake = {"FAKE_GPUS": "1"} if self.options.fake_gpus else {}
        gpu = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(record.gpu)}
        return {**given, "PYTHONUNBUFFERED": "1", **gpu, **fake, **asked, LOCAL_NAME: record.name}


def _instance(record: Record) -> Instance:
    return Instance(
        ref=InstanceRef(record.name),
        name=record.name,
        state=InstanceState.STARTING if record.process is None else InstanceState.RUNNING,
        gpu_type="local",
        gpu_count=1,
        created_at=record.created_at,
    )
