"""A herd that stands still, for `herdsman top`: jobs, workers, decisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

from herdsman.fleet.wire import (
    FleetWorkerOut,
    GpuBarOut,
    HeldOut,
    LeadOut,
    OverviewOut,
    QueueOut,
    RecoveredOut,
    SeriesOut,
    StepOut,
)
from herdsman.jobs.wire import JobDetail
from tests.support.job_fields import job_fields

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def a_job(job_id: str, status: str, **more: Any) -> JobDetail:
    told = job_fields(status, ago(minutes=3), job_id=job_id, payload={"prompt": "a herd"})
    return JobDetail(**told | more)


def a_worker(worker_id: str, status: str = "active", **more: Any) -> FleetWorkerOut:
    told: dict[str, Any] = {
        "worker_id": worker_id,
        "pool": "default",
        "status": status,
        "reason": "registered",
        "since": ago(minutes=10),
        "created_at": ago(minutes=12),
        "last_heartbeat": ago(seconds=2),
        "instance_type": "RTX 4090",
        "node_id": "node-7",
        "cost_per_hour": 0.44,
        "error": None,
        "jobs": (),
        "gpus": (),
    }
    return FleetWorkerOut(**told | more)


def a_gpu(used_gb: int, total_gb: int = 24, index: int = 0) -> GpuBarOut:
    return GpuBarOut(
        uuid=f"GPU-{index}",
        index=index,
        name="NVIDIA RTX 4090",
        used_mb=used_gb * 1024,
        total_mb=total_gb * 1024,
        busy_pct=87.0,
    )


def a_held(job_id: str, progress: float | None, note: str | None = None) -> HeldOut:
    return HeldOut(
        job_id=job_id,
        type="image",
        status="running",
        progress=progress,
        progress_note=note,
        since=ago(seconds=40),
    )


def a_step(words: str, **more: Any) -> StepOut:
    told: dict[str, Any] = {
        "cycle": 41,
        "at": ago(seconds=20),
        "action": "SpawnWorker",
        "about": "default",
        "pool": "default",
        "code": "QUEUE_LONG",
        "reason": "the queue is longer than the workers can empty",
        "numbers": {"queued": 14, "active": 2},
        "done": True,
        "words": words,
    }
    return StepOut(**told | more)


JOBS = (
    a_job("img-16", "pending"),
    a_job("img-15", "pending"),
    a_job(
        "img-14",
        "running",
        attempts=2,
        interruptions=1,
        worker_id="gpu-1767268800-0c1f1d5e-6e5c-4a55-9d36-0d4a7f7a3f10",
        progress=0.62,
        progress_note="half of it",
        reason="started",
    ),
    a_job("img-13", "dead_letter", attempts=3, reason="exhausted", last_error="CUDA out of memory"),
    a_job("7f3c9d2e7f3c9d2e7f3c9d2e7f3c9d2e", "done", type="demo", reason="completed", attempts=1),
)
WORKERS = (
    a_worker(
        "gpu-1767268800-0c1f1d5e-6e5c-4a55-9d36-0d4a7f7a3f10",
        jobs=(a_held("img-14", 0.62, "half of it"),),
        gpus=(a_gpu(12),),
    ),
    a_worker(
        "gpu-1767268801-77c1a0b2-0b3d-4e6f-8a55-5b1d3c2e4f60",
        jobs=(a_held("img-11", 0.1), a_held("img-12", None)),
        gpus=(a_gpu(3), a_gpu(23, index=1)),
    ),
    a_worker("gpu-1767268802-d1c2b3a4-1111-4222-8333-444455556666", "spawning", reason="spawned"),
    a_worker("mine", "terminating", pool="video", reason="drained", gpus=(a_gpu(24),), jobs=()),
)
STEPS = (
    a_step("spawned a worker in default: 14 jobs wait for 2 workers"),
    a_step(
        "kept the fleet of video as it is: it would grow at 7 queued, blocked by MAX_ACTIVE_GPUS=10",
        action="Note",
        code="AT_MAX",
        about="video",
        at=ago(minutes=2),
        times=12,
    ),
    a_step(
        "could not end worker gpu-9: the provider did not answer",
        action="EndWorker",
        code="PROVIDER_AWAY",
        about="gpu-9",
        done=False,
        said="the provider did not answer",
        at=ago(hours=3),
    ),
)


def an_overview(**more: Any) -> OverviewOut:
    told: dict[str, Any] = {
        "now": NOW,
        "version": "0.1.0",
        "leader": LeadOut(who="box-1", epoch=3, since=ago(hours=2)),
        "jobs": {
            "scheduled": 0,
            "pending": 14,
            "claimed": 0,
            "running": 3,
            "done": 1204,
            "failed": 1,
            "dead_letter": 2,
            "cancelled": 0,
        },
        "oldest_wait_s": 185.0,
        "oldest_job": "img-15",
        "queue": (
            QueueOut(type="image", pool="default", queued=12, oldest_s=185),
            QueueOut(type="render-a-long-film-in-parts", pool="video", queued=2, oldest_s=4),
        ),
        "running": 3,
        "workers": {"spawning": 1, "active": 2, "terminating": 1},
        "cost_per_hour": 1.32,
        "cost_today": 8.4,
        "recovered": RecoveredOut(jobs=0, saved_gpu_seconds=0),
        "holds": (),
        "last_decisions": STEPS,
        "series": SeriesOut(by="type", queued={"image": (0, 1, 2, 4, 8, 6, 10, 12)}),
    }
    return OverviewOut(**told | more)
