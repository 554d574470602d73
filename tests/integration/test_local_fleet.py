"""The control loop with real worker processes on this machine: they run jobs, and killing one loses nothing."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.fleet import model as fleet_model
from herdsman.fleet import snapshot_sql, workers_sql
from herdsman.fleet import sql as fleet_sql
from herdsman.fleet.model import Worker
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import cancel_job, find_attempts, find_history, find_job, submit_job
from herdsman.jobs.model import Job, NewJob
from herdsman.jobs.sweep import Sweeper
from herdsman.ports import SystemClock
from herdsman.providers.local import processes
from herdsman.providers.local.processes import Identity
from herdsman.providers.local.provider import LocalProvider
from herdsman.server.wiring import Control, open_control, open_provider
from herdsman.settings import Settings, load_settings
from herdsman.states import HELD, JobStatus, WorkerStatus
from tests.conftest import Backend
from tests.support.api_server import serving
from tests.support.builders import replayed

QUICK = {
    "PROVIDER": "local",
    "FAKE_GPUS": "4",
    "MIN_ACTIVE_GPUS": "2",
    "MAX_ACTIVE_GPUS": "3",
    "HEARTBEAT_INTERVAL_SEC": "0.5",
    "CLAIM_TTL_SEC": "3",
    "SELF_FENCE_SEC": "2",
    "SWEEP_INTERVAL_SEC": "0.5",
    "SQL_POLL_SEC": "0.2",
    "HEARTBEAT_TIMEOUT_SEC": "30",
    "CANCEL_GRACE_SEC": "1",
    "LOG_LEVEL": "warning",
}


@dataclass
class Farm:
    """One control plane and its processes."""

    settings: Settings
    services: Services
    control: Control
    pids: dict[str, Identity] = field(default_factory=dict[str, Identity])

    def until(self, holds: Callable[[], bool], patience_s: float = 40) -> None:
        """The loop goes on until then, quicker than in life."""
        interval = timedelta(seconds=self.settings.jobs.sweep_interval_sec)
        sweeper = Sweeper(self.services, SystemClock(), interval)
        deadline = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < deadline, self.story()
            self.control.leadership.campaign()
            self.control.reconciler.tick()
            sweeper.pass_once()
            self.pids |= self.processes()
            time.sleep(0.2)

    def submit(self, count: int, seconds: float) -> list[JobId]:
        wanted = NewJob(type="demo", payload={"seconds": seconds})
        return [submit_job(self.services, wanted).job_id for _ in range(count)]

    def jobs(self, ids: list[JobId]) -> list[Job]:
        return [find_job(self.services, job_id) for job_id in ids]

    def workers(self, *states: WorkerStatus) -> list[Worker]:
        found = self.services.database.read(workers_sql.page_workers).workers
        return [worker for worker in found if worker.status in states]

    def processes(self) -> dict[str, Identity]:
        """By the name of the instance: what was started here, and nothing else."""
        provider = open_provider(self.settings)
        assert isinstance(provider, LocalProvider)
        with provider.state.locked():
            records = provider.state.records()
        return {record.name: record.process for record in records if record.process is not None}

    def process_of(self, worker_id: WorkerId) -> Identity:
        ref = self.services.database.read(lambda tx: snapshot_sql.read_worker(tx, worker_id).instance_ref)
        assert ref is not None
        return self.processes()[ref]

    def story(self) -> str:
        provider = open_provider(self.settings)
        lines = [line for name in self.pids for line in [name, *provider.logs(fleet_model.InstanceRef(name), 30)]]
        return "\n".join(["it never came to be:", *lines])

    def end(self) -> None:
        """Asked politely, idle workers leave by themselves; what does not is killed, and that is a failure."""
        self.pids |= self.processes()
        provider = open_provider(self.settings)
        for name in self.pids:
            provider.terminate(fleet_model.InstanceRef(name))
        deadline = time.monotonic() + 10
        while provider.list_instances() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [pid for who in self.pids.values() for pid in processes.family(who)]
        for who in self.pids.values():
            processes.kill_family(who)
        assert left == [], self.story()


@pytest.fixture(params=["sqlite", "postgresql"])
def farm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Farm]:
    backend: Backend = request.getfixturevalue(request.param)
    url = backend.fresh()
    settings = load_settings({**QUICK, "DATABASE_URL": url, "LOCAL_STATE_DIR": str(tmp_path)}, tmp_path)
    with serving(settings) as services:
        farm = Farm(settings, services, open_control(settings, services))
        try:
            yield farm
        finally:
            farm.control.leadership.resign()
            farm.end()
    backend.drop(url)


def test_jobs_run_to_their_end_and_a_killed_worker_loses_none(farm: Farm) -> None:
    short = farm.submit(6, seconds=0.4)
    farm.until(lambda: all(job.status is JobStatus.DONE for job in farm.jobs(short)))
    assert len(farm.workers(WorkerStatus.ACTIVE)) == 2, "the floor"
    gpus: list[Any] = [worker.metadata["gpus"] for worker in farm.workers(WorkerStatus.ACTIVE)]
    assert sorted(gpu["index"] for (gpu,) in gpus) == [0, 1], "as the provider gave them"
    assert len({gpu["uuid"] for (gpu,) in gpus}) == 2
    assert {job.result["slept"] for job in farm.jobs(short)} == {0.4}  # type: ignore[index]
    killed_job, job = _kill_a_busy_worker(farm)
    assert job.result == {"slept": 4}
    assert job.worker_losses == 1
    attempts = find_attempts(farm.services, killed_job)
    assert [each.outcome for each in attempts].count("done") == 1
    assert attempts[0].worker_id != attempts[-1].worker_id
    reasons = [step.reason for step in find_history(farm.services, killed_job)]
    assert reasons == ["submitted", "claimed", "started", "claim_expired", "claimed", "started", "completed"]
    assert replayed(farm.services, killed_job) == JobStatus.DONE
    _let_a_busy_worker_drain(farm)
    _stop_a_job(farm)


def _kill_a_busy_worker(farm: Farm) -> tuple[JobId, Job]:
    (job_id,) = farm.submit(1, seconds=4)
    farm.until(lambda: find_job(farm.services, job_id).status is JobStatus.RUNNING)
    holder = find_job(farm.services, job_id).worker_id
    assert holder is not None
    who = farm.process_of(holder)
    assert len(processes.family(who)) == 3, "the supervisor, its handler and the fence of that"
    os.kill(who.pid, signal.SIGKILL)
    farm.until(lambda: not processes.family(who), patience_s=5)
    farm.until(lambda: find_job(farm.services, job_id).status is JobStatus.DONE)
    return job_id, find_job(farm.services, job_id)


def _let_a_busy_worker_drain(farm: Farm) -> None:
    """Told to leave, it finishes what it holds, says so, and is gone."""
    (job_id,) = farm.submit(1, seconds=2)
    farm.until(lambda: find_job(farm.services, job_id).status is JobStatus.RUNNING)
    holder = find_job(farm.services, job_id).worker_id
    assert holder is not None
    who = farm.process_of(holder)
    farm.services.database.transact(lambda tx: fleet_sql.drain(tx, holder))
    farm.until(lambda: not processes.is_alive(who))
    job = find_job(farm.services, job_id)
    assert (job.status, job.attempts, job.last_worker_id) == (JobStatus.DONE, 1, holder)
    ref = next(name for name, each in farm.pids.items() if each == who)
    said = open_provider(farm.settings).logs(fleet_model.InstanceRef(ref), 5)
    assert said[-1] == f"Worker {holder} shutting down gracefully"


def _stop_a_job(farm: Farm) -> None:
    (job_id,) = farm.submit(1, seconds=60)
    farm.until(lambda: find_job(farm.services, job_id).status is JobStatus.RUNNING)
    cancel_job(farm.services, job_id)
    farm.until(lambda: find_job(farm.services, job_id).status not in HELD)
    assert find_job(farm.services, job_id).status is JobStatus.CANCELLED


def test_the_fleet_is_found_again_by_a_new_control_plane(farm: Farm) -> None:
    farm.until(lambda: len(farm.workers(WorkerStatus.ACTIVE)) == 2)
    before = farm.processes()
    farm.control.leadership.resign()
    farm.control = open_control(farm.settings, farm.services)
    (job_id,) = farm.submit(1, seconds=0)
    farm.until(lambda: find_job(farm.services, job_id).status is JobStatus.DONE)
    assert farm.processes() == before


def test_a_worker_gets_what_it_needs_and_no_other_secret(tmp_path: Path) -> None:
    """Neither the keys that the control plane has, nor the way to its database."""
    env = {**QUICK, "RUNPOD_API_KEY": "rpa_secret", "LOCAL_STATE_DIR": str(tmp_path)}
    settings = load_settings(env, tmp_path)
    provider = open_provider(settings)
    assert isinstance(provider, LocalProvider)
    given = {name: value.get_secret_value() for name, value in provider.options.environment.items()}
    assert given["HERDSMAN_CLAIM_TTL_SEC"] == "3.0"
    assert "HERDSMAN_DATABASE_URL" not in given
    assert "rpa_secret" not in given.values()
    assert provider.options.command == (sys.executable, "-m", "herdsman", "worker")
