"""`herdsman worker` in front of a ComfyUI: results come home, errors are of the right class, and the worker lives."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from herdsman.fleet import workers_sql
from herdsman.fleet.workers_sql import unfit_of
from herdsman.ids import WorkerId
from herdsman.jobs.commands import cancel_job, read_logs
from herdsman.jobs.model import FailureClass, Job
from herdsman.states import JobStatus, Reason
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from tests.conftest import Backend
from tests.integration.worker.test_real_worker import RealWorker, real_worker
from tests.integration.worker.worker_programs import ROOT, eventually
from tests.support.comfyui import workflow

SPEED = 10.0
SETTINGS = {
    "WORKER_HEALTH_CHECK_INTERVAL_MS": "200",
    "WORKER_WEBSOCKET_INACTIVITY_TIMEOUT_MS": "800",
    "WORKER_SERVICE_PATIENCE_SEC": "3",
    "RESULT_MAX_FILE_MB": "4",
    "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)]),
}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeComfyUI]:
    with FakeComfyUI(speed=SPEED) as service:
        yield service


@pytest.fixture(autouse=True)
def calm(fake: FakeComfyUI) -> Iterator[None]:
    yield
    fake.clear_faults()


@pytest.fixture(scope="module")
def worker(sqlite: Backend, tmp_path_factory: pytest.TempPathFactory, fake: FakeComfyUI) -> Iterator[RealWorker]:
    url = sqlite.fresh()
    with real_worker(url, tmp_path_factory.mktemp("worker"), COMFYUI_URL=fake.url, **SETTINGS) as started:
        yield started
        assert started.leave() == 0, started.said()
    sqlite.drop(url)


def node(kind: str, **inputs: object) -> dict[str, Any]:
    return {"1": {"class_type": kind, "inputs": inputs}}


def render(worker: RealWorker, given: dict[str, Any], **wanted: Any) -> Job:
    return worker.run("comfyui", {"workflow": given}, **wanted)


def test_a_picture_comes_home(worker: RealWorker, fake: FakeComfyUI) -> None:
    job = render(worker, workflow(11))
    assert (job.status, job.reason) == (JobStatus.DONE, Reason.COMPLETED), job.last_error
    (output,) = cast("dict[str, Any]", job.result)["outputs"]
    stored = Path(output["uri"].removeprefix("file://"))
    assert stored.read_bytes() == fake.content(output["name"])
    assert job.service_job_id is not None
    assert (fake.renders(job.service_job_id), job.service_status) == (1, "submitted")


def test_progress_is_told_node_by_node(worker: RealWorker) -> None:
    job_id = worker.submit("comfyui", {"workflow": workflow(12, steps=40, seconds=2)})
    seen: list[Job] = []
    eventually(lambda: seen.append(worker.job(job_id)) or "KSampler" in (seen[-1].progress_note or ""))
    eventually(lambda: seen.append(worker.job(job_id)) or (seen[-1].progress or 0) > 0)
    assert (seen[-1].progress or 0) < 1, "what is cached is not counted, so it begins at 0"
    assert worker.ended(job_id).status is JobStatus.DONE


def test_a_job_that_somebody_else_interrupts_runs_again_and_is_charged_nothing(
    worker: RealWorker, fake: FakeComfyUI
) -> None:
    """Somebody pressed the button in ComfyUI, which names no job: whatever runs is stopped."""
    job_id = worker.submit("comfyui", {"workflow": workflow(18, steps=10, seconds=2)})
    eventually(lambda: worker.job(job_id).service_job_id and fake.sockets and worker.job(job_id).progress)
    httpx.post(f"{fake.url}/interrupt", content=b"", trust_env=False).raise_for_status()
    job = worker.ended(job_id)
    assert job.status is JobStatus.DONE, job.last_error
    assert (job.attempts - job.interruptions, job.interruptions) == (1, 1)
    ends = [render.end for render in fake.ledger.renders[-2:]]
    assert ends == ["interrupted", "success"]


def test_an_end_that_was_never_told_is_found(worker: RealWorker, fake: FakeComfyUI) -> None:
    fake.add_fault(Fault.COMPLETION_NEVER_SENT)
    job = render(worker, workflow(13), timeout=None)
    assert fake.struck(Fault.COMPLETION_NEVER_SENT) == 1
    assert (job.status, job.reason) == (JobStatus.DONE, Reason.RECOVERED), job.last_error
    assert job.saved_gpu is not None
    assert job.last_service_check is not None
    said = "\n".join(line for piece in read_logs(worker.services, job.job_id).pieces for line in piece.lines)
    assert "action=complete_job" in said


CLASSES = {
    "unauthorized": (Fault.UNAUTHORIZED, FailureClass.INFRASTRUCTURE, "401"),
    "too many": (Fault.TOO_MANY, FailureClass.INFRASTRUCTURE, "429"),
    "broken": (Fault.SERVER_ERROR, FailureClass.INFRASTRUCTURE, "500"),
    "html": (Fault.HTML, FailureClass.INFRASTRUCTURE, "a page titled"),
    "hangs": (Fault.SLOW_HTTP, FailureClass.INFRASTRUCTURE, "did not answer"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_service_that_refuses_or_hangs_is_told_in_words(worker: RealWorker, fake: FakeComfyUI, name: str) -> None:
    fault, kind, said = CLASSES[name]
    details: dict[str, Any] = {"seconds": 600.0} if fault is Fault.SLOW_HTTP else {}
    fake.add_fault(fault, at="POST /prompt", times=None, **details)
    job = render(worker, workflow(14))
    assert (job.status, job.failure_class) == (JobStatus.DEAD_LETTER, kind), job.last_error
    assert said in (job.last_error or ""), job.last_error
    assert "Traceback" not in (job.last_error or "")
    fake.clear_faults()
    still_works(worker)


WRONG: dict[str, tuple[dict[str, Any], FailureClass, str]] = {
    "unknown node": (node("NoSuchNode"), FailureClass.INFRASTRUCTURE, "NoSuchNode"),
    "missing input": (node("SaveImage", filename_prefix="x"), FailureClass.USER_ERROR, "images"),
    "missing model": (
        workflow() | node("CheckpointLoaderSimple", ckpt_name="nope.safetensors"),
        FailureClass.INFRASTRUCTURE,
        "nope.safetensors",
    ),
    "no workflow": ({"nodes": [], "links": []}, FailureClass.USER_ERROR, "API"),
    "a node fails": (node("HerdsmanFail", message="bad luck"), FailureClass.JOB_ERROR, "bad luck"),
    "out of memory": (node("HerdsmanOutOfMemory"), FailureClass.OUT_OF_MEMORY, "emory"),
    "too large": (node("HerdsmanHuge", megabytes=9), FailureClass.USER_ERROR, "RESULT_MAX_FILE_MB"),
    "it leads out": (node("HerdsmanName", filename="../../etc/x"), FailureClass.USER_ERROR, "leads out"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_job_that_cannot_be_done_is_of_the_right_class(worker: RealWorker, name: str) -> None:
    given, kind, said = WRONG[name]
    job = render(worker, given)
    assert (job.status, job.failure_class) == (JobStatus.DEAD_LETTER, kind), job.last_error
    assert said in (job.last_error or ""), job.last_error
    still_works(worker)


def test_two_gigabytes_go_through_a_small_memory(worker: RealWorker) -> None:
    """The limit is found from what the service announces, or on the way; nothing of it is left."""
    job = render(worker, node("HerdsmanHuge", megabytes=2048))
    assert job.failure_class is FailureClass.USER_ERROR, job.last_error
    kept = worker.place / "results" / job.job_id
    assert not kept.exists() or not list(kept.iterdir())


def test_no_job_is_claimed_while_the_service_is_away(worker: RealWorker, fake: FakeComfyUI) -> None:
    fake.crash()
    eventually(lambda: "no job is taken" in worker.said() or not_asked(worker))
    eventually(lambda: "jobs of type comfyui are not taken: " in worker.said())
    (row,) = worker.services.database.read(workers_sql.page_workers).workers
    eventually(lambda: "comfyui" in _unfit(worker, row.id))
    job_id = worker.submit("comfyui", {"workflow": workflow(15)})
    assert worker.run("echo", "meanwhile").status is JobStatus.DONE
    assert worker.job(job_id).attempts == 0
    fake.restart()
    assert worker.ended(job_id).status is JobStatus.DONE
    eventually(lambda: not _unfit(worker, row.id))
    assert "jobs of type comfyui are taken again" in worker.said()


def _unfit(worker: RealWorker, worker_id: WorkerId) -> Mapping[str, str]:
    return unfit_of(worker.services.database.read(lambda tx: workers_sql.get_worker(tx, worker_id)).metadata)


def not_asked(worker: RealWorker) -> bool:
    """A worker that knows other jobs goes on with those."""
    probe = worker.submit("comfyui", {"workflow": workflow(16)})
    worker.run("echo", "a moment")
    waits = worker.job(probe).attempts == 0
    cancel_job(worker.services, probe)
    return waits


def still_works(worker: RealWorker) -> None:
    assert worker.process.poll() is None, worker.said()
    assert render(worker, workflow(17)).status is JobStatus.DONE


def test_two_workers_share_one_service_and_a_cancel_stops_its_own_job_alone(sqlite: Backend, tmp_path: Path) -> None:
    url = sqlite.fresh()
    with ExitStack() as both:
        fake = both.enter_context(FakeComfyUI(speed=1))
        places = [tmp_path / name for name in ("one", "two")]
        for place in places:
            place.mkdir()
        first, _second = (
            both.enter_context(real_worker(url, place, state=str(tmp_path), COMFYUI_URL=fake.url, **SETTINGS))
            for place in places
        )
        long = [first.submit("comfyui", {"workflow": workflow(n, seconds=2)}) for n in (1, 2)]
        eventually(lambda: fake.runs == 1 and all(first.job(each).service_job_id for each in long))
        running = next(each for each in long if first.job(each).service_job_id == fake.ledger.renders[0].prompt_id)
        waiting = next(each for each in long if each != running)
        cancel_job(first.services, waiting)
        assert first.ended(waiting).status is JobStatus.CANCELLED
        assert first.ended(running).status is JobStatus.DONE
        third, fourth = (first.submit("comfyui", {"workflow": workflow(n, seconds=2)}) for n in (3, 4))
        eventually(lambda: all(first.job(each).service_job_id for each in (third, fourth)))
        eventually(lambda: fake.runs == 2)
        at_work = fake.ledger.renders[-1].prompt_id
        stopped = next(each for each in (third, fourth) if first.job(each).service_job_id == at_work)
        other = third if stopped == fourth else fourth
        cancel_job(first.services, stopped)
        assert first.ended(stopped).status is JobStatus.CANCELLED
        assert first.ended(other).status is JobStatus.DONE
        assert [render.end for render in fake.ledger.renders] == ["success", "interrupted", "success"]
    sqlite.drop(url)
