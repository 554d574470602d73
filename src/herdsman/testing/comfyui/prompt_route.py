"""`POST /prompt`: a job comes in."""

import re
from typing import Any, cast

from herdsman.testing.comfyui.checking import Rejected, check
from herdsman.testing.comfyui.faults import Fault
from herdsman.testing.comfyui.jobs import Job
from herdsman.testing.comfyui.life import Killed, Life
from herdsman.testing.comfyui.replies import (
    Answer,
    NoReply,
    Refused,
    Request,
    ok,
    refusal,
    server_error,
)
from herdsman.testing.comfyui.setup import now_ms

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def post_prompt(life: Life, request: Request) -> Answer:
    fields = request.object()
    try:
        job, node_errors = _read(life, fields)
    except Rejected as rejected:
        return refusal(400, rejected.body)
    faults = life.setup.faults
    if faults.strikes(Fault.ERROR_BEFORE_QUEUEING, prompt_id=job.prompt_id):
        return server_error()
    try:
        # Before it is put into the queue, so that it certainly never runs; nobody can tell the difference.
        life.step({"queued"}, job.prompt_id)
    except Killed:
        return NoReply()
    smooth = life.queue(job)
    if not smooth or faults.strikes(Fault.ERROR_AFTER_QUEUEING, prompt_id=job.prompt_id):
        return server_error()
    if closed := faults.strikes(Fault.CLOSED_PROMPT, prompt_id=job.prompt_id):
        life.dead.wait(closed.number("seconds", 0) / life.setup.speed)
        return NoReply()
    return ok({"prompt_id": job.prompt_id, "number": job.number, "node_errors": node_errors})


def _read(life: Life, fields: dict[str, Any]) -> tuple[Job, dict[str, Any]]:
    if "prompt" not in fields:
        raise Rejected("no_prompt", "No prompt provided", "No prompt provided")
    workflow, extra = fields["prompt"], fields.get("extra_data", {})
    if not isinstance(workflow, dict) or not isinstance(extra, dict):
        raise Refused(server_error())
    number = _number(life, fields)
    prompt_id = _prompt_id(life, fields)
    targets = cast("list[str] | None", fields.get("partial_execution_targets"))
    checked = check(cast("dict[str, Any]", workflow), targets, life.setup.files)
    extra_data = dict(cast("dict[str, Any]", extra))
    if "client_id" in fields:
        extra_data["client_id"] = fields["client_id"]
    job = Job(
        number=number,
        prompt_id=prompt_id,
        workflow=cast("dict[str, Any]", workflow),
        extra_data={**extra_data, "create_time": now_ms()},
        outputs=checked.outputs,
    )
    return job, checked.node_errors


def _number(life: Life, fields: dict[str, Any]) -> float:
    if "number" in fields:
        return float(fields["number"])
    number = -life.next_number if fields.get("front") else life.next_number
    life.next_number += 1
    return number


def _prompt_id(life: Life, fields: dict[str, Any]) -> str:
    """An id that is null becomes the word None, as it does there."""
    if "prompt_id" not in fields or not life.setup.takes_our_id:
        return life.setup.new_id()
    prompt_id = str(fields["prompt_id"])
    if life.setup.wants_canonical_ids and not UUID.fullmatch(prompt_id):
        raise Rejected("invalid_prompt_id", "prompt_id must be a lower-case UUID", prompt_id)
    return prompt_id
