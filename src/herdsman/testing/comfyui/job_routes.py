"""The jobs over HTTP: queue, history, the newer `/api/jobs`, and how to stop them."""

import json
from typing import Any, cast

from herdsman.testing.comfyui.faults import Fault
from herdsman.testing.comfyui.jobs import Job, Past
from herdsman.testing.comfyui.life import Life
from herdsman.testing.comfyui.replies import Reply, Request, empty, ok, refusal

INTERRUPTED = "execution_interrupted"


def get_queue(life: Life, _: Request) -> Reply:
    return ok(life.jobs.shown())


def get_load(life: Life, _: Request) -> Reply:
    return ok({"exec_info": {"queue_remaining": life.jobs.remaining}})


def get_history(life: Life, request: Request) -> Reply:
    past = list(life.jobs.past().items())
    offset = int(request.query.get("offset", 0))
    most = int(request.query.get("max_items", len(past)))
    first = offset if "offset" in request.query else max(0, len(past) - most)
    return ok({prompt_id: each.shown() for prompt_id, each in past[first : first + most]})


def get_history_of(life: Life, request: Request) -> Reply:
    """Empty for what waits or runs, as for what nobody knows."""
    prompt_id = request.route.removeprefix("/history/")
    past = life.jobs.past().get(prompt_id)
    return ok({} if past is None else {prompt_id: past.shown()})


def post_history(life: Life, request: Request) -> Reply:
    fields = request.object()
    if fields.get("clear"):
        life.jobs.forget(None)
    for prompt_id in cast("list[str]", fields.get("delete") or []):
        life.jobs.forget(prompt_id)
    return empty()


def post_queue(life: Life, request: Request) -> Reply:
    fields = request.object()
    if fields.get("clear"):
        life.jobs.drop(None)
    for prompt_id in cast("list[str]", fields.get("delete") or []):
        life.jobs.drop(prompt_id)
    life.tell_status()
    return empty()


def post_free(life: Life, request: Request) -> Reply:
    fields = request.object()
    if fields.get("free_memory"):
        life.free_memory()
    return empty()


def post_interrupt(life: Life, request: Request) -> Reply:
    """Without an id that can be read, and on older servers always: whatever runs."""
    wanted = _interrupt_id(request.body) if life.setup.interrupts_by_id else None
    running = life.jobs.running
    if running is None or wanted not in (None, running.prompt_id):
        return empty()
    if not life.setup.faults.strikes(Fault.INTERRUPT_IGNORED, prompt_id=running.prompt_id):
        life.interrupt()
    return empty()


def _interrupt_id(body: bytes | None) -> str | None:
    try:
        fields = json.loads(body or b"")
    except ValueError:
        return None
    return cast("dict[str, Any]", fields).get("prompt_id") if isinstance(fields, dict) else None


def get_job(life: Life, request: Request) -> Reply:
    found = life.jobs.look(request.route.removeprefix("/jobs/"))
    if found is None:
        return refusal(404, {"error": "Job not found"})
    return ok(_job(life, found, whole=True))


def get_jobs(life: Life, request: Request) -> Reply:
    running = life.jobs.running
    past = list(life.jobs.past().values())
    everything: list[Job | Past] = [*life.jobs.waiting, *([running] if running else []), *past[::-1]]
    shown = [_job(life, each, whole=False) for each in everything]
    wanted = request.query.get("status")
    chosen = [each for each in shown if wanted is None or each["status"] in wanted.split(",")]
    offset, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", len(chosen) or 1))
    page = chosen[offset : offset + limit]
    pages = {"offset": offset, "limit": limit, "total": len(chosen)}
    return ok({"jobs": page, "pagination": {**pages, "has_more": offset + len(page) < len(chosen)}})


def post_cancel(life: Life, request: Request) -> Reply:
    prompt_id = request.route.removeprefix("/jobs/").removesuffix("/cancel")
    found = life.jobs.look(prompt_id)
    if found is None:
        return refusal(404, {"error": "Job not found"})
    life.jobs.drop(prompt_id)
    life.tell_status()
    if found is life.jobs.running and not life.setup.faults.strikes(
        Fault.INTERRUPT_IGNORED, prompt_id=prompt_id
    ):
        life.interrupt()
    return ok({"cancelled": True})


def _job(life: Life, found: Job | Past, *, whole: bool) -> dict[str, Any]:
    job = found if isinstance(found, Job) else found.job
    shown: dict[str, Any] = {
        "id": job.prompt_id,
        "status": "in_progress" if found is life.jobs.running else "pending",
        "priority": job.number,
        "create_time": job.extra_data["create_time"],
        "execution_start_time": job.started_ms,
        "execution_end_time": None,
        "outputs_count": 0,
        "workflow_id": None,
    }
    return {**shown, **_ended(life, found, whole=whole)} if isinstance(found, Past) else shown


def _ended(life: Life, past: Past, *, whole: bool) -> dict[str, Any]:
    last, data = past.messages[-1]
    files = [item for output in past.outputs.values() for kind in output.values() for item in kind]
    shown: dict[str, Any] = {
        "status": "completed" if past.status == "success" else "failed",
        "execution_end_time": past.ended_ms,
        "outputs_count": len(files),
    }
    if last == INTERRUPTED and life.setup.wants_canonical_ids:
        shown["status"] = "cancelled"
    if last == "execution_error" and past.status == "error":
        shown["execution_error"] = data
    if files:
        shown["preview_output"] = files[0]
    if whole:
        shown["outputs"] = past.outputs
        shown["execution_status"] = past.shown()["status"]
        shown["workflow"] = {"prompt": past.job.workflow, "extra_data": past.job.extra_data}
    return shown
