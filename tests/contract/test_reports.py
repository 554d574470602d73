"""What a worker says about its GPUs is kept with its beat."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from herdsman.context import Services
from herdsman.errors import StaleWrite
from herdsman.fleet import snapshot_sql, workers_sql
from herdsman.fleet.commands import move_worker, register_worker
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.fleet.snapshot import WorkerSnapshot
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.jobs.protocol import ClaimRequest, Done, Progress, WorkerHeartbeat
from herdsman.ports import SystemClock
from herdsman.states import JobStatus, Reason, WorkerStatus
from herdsman.testing.direct_queue import DirectQueue
from tests.support.builders import a_job, a_worker
from tests.support.databases import NOON
from tests.support.worker_calls import beat

pytestmark = pytest.mark.usefixtures("stopped_clock")
WELL = GpuReport(ready=True, seen=True, vram_total_mb=24_576, vram_used_mb=512, vram_age=timedelta(seconds=2))


def seen(services: Services) -> WorkerSnapshot:
    (worker,) = services.database.read(snapshot_sql.read_workers)
    return worker


def test_a_report_is_kept_and_its_measurement_has_its_own_time(services: Services) -> None:
    worker_id = WorkerId("w1")
    register_worker(services, worker_id, metadata={"host": "here"})
    beat(services, worker_id, None, WELL)
    now = seen(services)
    assert (now.ready, now.gpu_seen, now.gpu_fault) == (True, True, None)
    assert now.vram_at == NOON - timedelta(seconds=2)
    assert services.database.read(lambda tx: workers_sql.get_worker(tx, worker_id)).metadata == {
        "host": "here",
        "vram_total_mb": 24_576,
        "vram_used_mb": 512,
        "vram_timestamp": "2026-03-01T11:59:58+00:00",
    }


def test_the_room_on_its_disk_is_kept(services: Services) -> None:
    worker_id = a_worker(services)
    beat(services, worker_id, None, replace(WELL, disk_total_mb=214_000, disk_free_mb=9_500))
    now = seen(services)
    assert (now.disk_total_gb, now.disk_free_gb) == (214, 9.5)


def test_a_beat_without_a_report_changes_none_and_a_fault_is_cut_to_fit(services: Services) -> None:
    worker_id = a_worker(services)
    beat(services, worker_id, None, WELL)
    beat(services, worker_id)
    assert seen(services).gpu_seen is True
    beat(services, worker_id, None, GpuReport(ready=False, seen=None, fault="x\0" * 500))
    now = seen(services)
    assert (now.ready, now.gpu_seen, len(now.gpu_fault or "")) == (False, None, 255)
    assert now.vram_at == NOON - timedelta(seconds=2)


def test_a_worker_that_was_given_up_reports_in_vain(services: Services) -> None:
    worker_id = a_worker(services)
    move_worker(services, worker_id, WorkerStatus.ERROR, Reason.LOST)
    with pytest.raises(StaleWrite):
        beat(services, worker_id, None, WELL)
    assert seen(services).ready is None


def test_the_direct_queue_enlists_works_and_leaves(services: Services) -> None:
    queue = DirectQueue(
        services=services, worker_id=WorkerId("by-hand"), clock=SystemClock(), poll=timedelta(seconds=0.01)
    )
    assert queue.enlist(DEFAULT_POOL) is True
    assert queue.enlist(DEFAULT_POOL) is False
    ask = ClaimRequest(types=("demo",))
    assert queue.claim(ask) == []
    a_job(services)
    move_worker(services, queue.worker_id, WorkerStatus.ACTIVE, Reason.READY)
    (claim,) = queue.claim(ask, timedelta(seconds=5))
    key = claim.key
    assert queue.start([key]) == {}
    queue.put_checkpoint(key, {"step": 1})
    assert queue.get_checkpoint(key) == {"step": 1}
    heartbeat = WorkerHeartbeat(keys=(key,), report=WELL, progress={key: Progress(done=0.5, note="half")})
    assert queue.beat(heartbeat).drain is False
    assert [told.status for told in queue.finish([Done(key, {"ok": 1})], ask).told] == [JobStatus.DONE]
    queue.leave()
    queue.leave()
    assert seen(services).status is WorkerStatus.TERMINATING
    assert queue.beat(WorkerHeartbeat()).drain is True


def test_each_gpu_is_kept_with_what_uses_it(services: Services) -> None:
    worker_id = a_worker(services)
    gpu = GpuDevice(index=0, uuid="GPU-1", name="L4\0" * 100, total_mb=24_576, used_mb=512, processes=((7, 500),) * 99)
    beat(services, worker_id, None, replace(WELL, devices=(gpu,) * 99))
    kept = cast(
        "list[dict[str, Any]]",
        services.database.read(lambda tx: workers_sql.get_worker(tx, worker_id)).metadata["gpus"],
    )
    assert len(kept) == 16
    assert (kept[0]["uuid"], kept[0]["used_mb"], kept[0]["processes"][0]) == ("GPU-1", 512, [7, 500])
    assert (len(kept[0]["name"]), len(kept[0]["processes"])) == (64, 32)
