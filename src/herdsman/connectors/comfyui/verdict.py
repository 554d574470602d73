"""What ComfyUI's answers say about a job, how its queue and history are asked for them, and its own health.

    in the queue, running or waiting           Working
    history: last message execution_error      Broken
    history: last message ..._interrupted      Broken, cancelled
    history: success, with what it must make   Finished
    history: success without                   Broken: run again
    neither                                    None here; `Unknown`, once everything was asked

The last message comes first: an error between two nodes leaves a history that calls itself a success.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta

from herdsman.connectors.comfyui.api import HAS_JOBS, OLDEST, Api, NotThere, read_version
from herdsman.connectors.comfyui.shapes import (
    as_list,
    as_number,
    as_object,
    as_text,
    item,
    one_line,
    without_insides,
)
from herdsman.connectors.comfyui.watch import Watch
from herdsman.connectors.comfyui.workflow import SAVERS, SOCKET_SAVER
from herdsman.errors import HerdsmanError, ServiceUnavailable
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import Broken, Finished, Fitness, Unknown, Verdict, Working
from herdsman.ports import Clock

LONGEST_ERROR = 2000
OURS = "herdsman"
"""Under this name our own facts travel with the prompt, and come back in queue and history."""
SETTLES = timedelta(seconds=2)
PAUSE = timedelta(seconds=0.1)
MB = 1024 * 1024


def find_in_queue(queue: Mapping[str, object], external_id: str) -> Working | None:
    running = [_id(entry) for entry in as_list(queue.get("queue_running"))]
    if external_id in running:
        return Working(position=0)
    # They come as a heap: only the number says which is next.
    pending = [_id(entry) for entry in sorted(as_list(queue.get("queue_pending")), key=_number)]
    if external_id not in pending:
        return None
    before = [*running, *pending[: pending.index(external_id)]]
    return Working(position=len(before), ahead=before[0] if before else None)


def head_of(queue: Mapping[str, object]) -> str | None:
    """What it is at, or would have to be; None while nothing is to be done."""
    running, pending = as_list(queue.get("queue_running")), as_list(queue.get("queue_pending"))
    line = [*running, *sorted(pending, key=_number)]
    return _id(line[0]) or None if line else None


def is_running(queue: Mapping[str, object], external_id: str) -> bool:
    return external_id in [_id(entry) for entry in as_list(queue.get("queue_running"))]


def find_in_history(history: Mapping[str, object], external_id: str) -> Mapping[str, object] | None:
    return as_object(history.get(external_id)) or None


def judge(entry: Mapping[str, object], delivered: Collection[str] = ()) -> Finished | Broken:
    """The history of a job that is over; `delivered` are nodes whose images came through the socket."""
    listed = as_list(as_object(entry.get("status")).get("messages"))
    messages = [(str(item(each, 0)), as_object(item(each, 1))) for each in listed]
    last, said = messages[-1] if messages else ("", as_object(None))
    if last == "execution_interrupted":
        return stopped("it was interrupted on the service")
    if last == "execution_error" or as_object(entry.get("status")).get("status_str") == "error":
        kind, message = str(said.get("exception_type") or "error"), str(said.get("exception_message") or "")
        no_memory = "OutOfMemory" in kind or "out of memory" in message.lower()
        # Its traceback and its inputs are left out: they hold paths of the server and whole tensors. So may its message.
        cause = without_insides(message[: 4 * LONGEST_ERROR])
        node = f"node {said.get('node_id', '?')} ({said.get('node_type', 'unknown')})"
        failed = FailureClass.OUT_OF_MEMORY if no_memory else FailureClass.JOB_ERROR
        text = one_line(f"{node} failed: {kind}: {cause}", LONGEST_ERROR)
        return Broken(failure=Failure(kind=failed, error=text))
    at = {name: as_number(data.get("timestamp")) for name, data in messages}
    begun, over = at.get("execution_start"), at.get("execution_success")
    seconds = None if begun is None or over is None else max(over - begun, 0.0) / 1000
    outputs, (by_history, by_socket) = as_object(entry.get("outputs")), _needed(entry)
    missing = (by_history - set(outputs) - set(delivered)) | (by_socket - set(delivered))
    if not missing:
        return Finished(outputs=outputs, seconds=seconds)
    named = ", ".join(sorted(missing))
    text = f"ComfyUI calls it a success, but has no output of node {named}; it has to run again"
    if missing & by_socket:
        text = (
            f"ComfyUI calls it a success, but images of node {named} came through a socket that was not open"
            " all the time, and it keeps none of them; it has to run again (SaveImage would keep them)"
        )
    return Broken(failure=Failure(kind=FailureClass.INFRASTRUCTURE, error=text))


def stopped(why: str) -> Broken:
    return Broken(failure=Failure(kind=FailureClass.INTERRUPTED, error=why), cancelled=True)


def _needed(entry: Mapping[str, object]) -> tuple[set[str], set[str]]:
    """The nodes that must have outputs in the history, and those whose images come through the socket.

    By what was sent: the workflow, what we expected of it, and which outputs ComfyUI took.
    """
    _, _, workflow, extra, taken = (item(entry.get("prompt"), at) for at in range(5))
    ours = as_object(as_object(extra).get(OURS))
    classes = {node: as_object(body).get("class_type") for node, body in as_object(workflow).items()}
    by_socket = {node for node, each in classes.items() if each == SOCKET_SAVER}
    expect = {str(node) for node in as_list(ours.get("expect"))}
    saving = {node for node, each in classes.items() if each in SAVERS}
    if taken is not None:
        saving &= {str(node) for node in as_list(taken)}
    wanted = expect or saving
    return wanted - by_socket, wanted & by_socket


def _id(entry: object) -> str:
    return as_text(item(entry, 1)) or ""


def _number(entry: object) -> float:
    return as_number(item(entry, 0)) or 0.0


def read_verdict(api: Api, clock: Clock, external_id: str, watch: Watch | None) -> Verdict:
    """`ServiceUnavailable` where nothing is known, which is never the same as not found (X3-02)."""
    try:
        verdict = _read_once(api, external_id, watch)
        if watch is not None and watch.ended:
            # The end is announced a moment before it is written down.
            deadline = clock.monotonic() + SETTLES.total_seconds()
            while isinstance(verdict, Working | Unknown) and clock.monotonic() < deadline:
                clock.sleep(PAUSE)
                verdict = _read_once(api, external_id, watch)
            # What still runs has not ended: it was another run under the same id.
            watch.ended = watch.ended and not isinstance(verdict, Working)
    except ServiceUnavailable:
        api.forget_version()
        raise
    return watch.known(verdict) if watch is not None and isinstance(verdict, Working) else verdict


def _read_once(api: Api, external_id: str, watch: Watch | None) -> Verdict:
    """By the route for jobs where there is one, else by queue and history."""
    status: object = None
    if api.version() >= HAS_JOBS:
        try:
            job = api.job(external_id)
        except NotThere:
            api.forget_version()
        else:
            if job is None:
                return Unknown(f"ComfyUI knows no job {external_id}")
            status = job.get("status")
    if status == "in_progress":
        return Working(position=0)
    if status not in ("completed", "failed", "cancelled"):
        # The queue first: in the other order a job that ends between the two reads is in neither.
        waiting = find_in_queue(api.queue(), external_id)
        if waiting is not None or status == "pending":
            return waiting or Working()  # it may have begun since, and then the next read says so
    entry = find_in_history(api.history(external_id), external_id)
    if entry is None:
        return Unknown(f"{external_id} is neither in ComfyUI's queue nor in its history")
    return judge(entry, watch.delivered() if watch is not None else ())


def read_fitness(api: Api) -> Fitness:
    """Never raises: what goes wrong is the fault."""
    try:
        stats, queued = api.system_stats(), api.queue_remaining()
        working_on = head_of(api.queue()) if queued else None
    except HerdsmanError as error:
        return Fitness(fault=str(error))
    version, fault = as_text(as_object(stats.get("system")).get("comfyui_version")), None
    known = read_version(stats)
    if "system" not in stats:
        fault = "what answers there is no ComfyUI: its /system_stats says nothing about a system"
    elif known is not None and known < OLDEST:
        oldest = ".".join(str(part) for part in OLDEST)
        fault = f"ComfyUI {version} is too old: {oldest} is the first that takes ids of our choice; update it"
    # The first device is the one that it works on.
    device = as_object(item(stats.get("devices"), 0))
    name = as_text(device.get("name"))
    total, free = as_number(device.get("vram_total")), as_number(device.get("vram_free"))
    return Fitness(
        fault=fault,
        version=version and one_line(version, 40),
        device=name and one_line(name, 100),
        vram_total_mb=None if total is None else int(total) // MB,
        vram_free_mb=None if free is None else int(free) // MB,
        queued=queued,
        working_on=working_on,
    )
