"""Runs jobs on ComfyUI, one at a time, with their files, and loses none that ComfyUI still knows.

What its answers say about a job:

    in the queue, running or waiting           Working
    history: last message execution_error      Broken
    history: last message ..._interrupted      Broken, cancelled
    history: success, with what it must make   Finished
    history: success without                   Broken: run again
    neither                                    `Unknown`, once everything was asked
"""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from herdsman import errors
from herdsman.connectors.comfyui import workflow
from herdsman.connectors.comfyui.api import HAS_JOBS, INTERRUPTS_BY_ID, OLDEST, Api, NotAllowed, NotThere, read_version
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_list, as_number, as_object, as_text, item, without_insides
from herdsman.connectors.comfyui.watch import Watch
from herdsman.connectors.registry import Around
from herdsman.jobs import protocol
from herdsman.jobs.model import Failure, FailureClass
from herdsman.ports import Clock, ResultStore
from herdsman.text import one_line

MB = 1024 * 1024
LONGEST_NAME = 100
LONGEST_ERROR = 2000
OURS = "herdsman"
"""Under this name our own facts travel with the prompt, and come back in queue and history."""
SETTLES = timedelta(seconds=2)
PAUSE = timedelta(seconds=0.1)


def upload(api: Api, results: ResultStore, file: workflow.InputFile, limit_mb: int) -> str:
    """The name under which ComfyUI has it now."""
    with tempfile.TemporaryFile() as content:
        try:
            size = 0
            for chunk in results.read(file.reference):
                size += len(chunk)
                if size > limit_mb * MB:
                    raise errors.InvalidRequest(  # noqa: TRY301  (as what the store refuses)
                        f"{file.reference[:200]!r} is larger than {limit_mb} MB; where ComfyUI takes more, raise the"
                        " option upload_limit_mb"
                    )
                content.write(chunk)
        except (errors.NotFound, errors.Forbidden, errors.InvalidRequest) as error:
            # A file of this machine's own directory may be there on another.
            here_only = isinstance(error, errors.NotFound) and file.reference.startswith("file:")
            said = f"the file for node {file.node}, input {file.name!r}, cannot be used: {error}"
            raise errors.ServiceRejected(said, retry=here_only) from error
        content.seek(0)
        last = PurePosixPath(unquote(urlsplit(file.reference).path)).name
        plain = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in last)
        return api.upload(plain.lstrip(".")[-LONGEST_NAME:] or "input", content)


@dataclass
class Harvest:
    """Brings what a job has made into the result store, and says it as JSON."""

    _api: Api
    _results: ResultStore
    _job_id: str
    _names: set[str] = field(default_factory=set[str])

    def gather(
        self, outputs: Mapping[str, object], from_socket: Mapping[str, Sequence[protocol.StoredFile]]
    ) -> dict[str, Any]:
        """The same outputs give the same, byte for byte, whoever asks and however often."""

        def by_number(node: str) -> tuple[tuple[int, int, str], ...]:
            """9 before 12, and both before names."""
            return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in node.split("."))

        files: list[dict[str, object]] = []
        values: dict[str, dict[str, object]] = {}
        for node in sorted({*outputs, *from_socket}, key=by_number):
            made: list[tuple[str, protocol.StoredFile]] = [("images", stored) for stored in from_socket.get(node, ())]
            for kind, found in as_object(outputs.get(node)).items():
                entries = [(each, as_object(each)) for each in as_list(found)]
                made += [
                    (kind, self._bring(node, fields))
                    for _, fields in entries
                    if isinstance(fields.get("filename"), str)
                ]
                texts = [
                    each for each, _ in entries if isinstance(each, str | int | float) and not isinstance(each, bool)
                ]
                if texts:
                    values.setdefault(node, {})[kind] = texts
            for kind, stored in made:
                files.append({"node": node, "kind": kind, **asdict(stored)})
        return {"outputs": files, "values": values}

    def _bring(self, node: str, said: Mapping[str, object]) -> protocol.StoredFile:
        place = {part: as_text(said.get(part)) or "" for part in ("filename", "subfolder", "type")}
        name, folder = place["filename"], place["subfolder"]
        if ".." in f"{folder}/{name}".replace("\\", "/").split("/") or name.startswith("/") or not name:
            raise errors.ServiceRejected(
                f"node {node} says that its output is {name!r} in {folder!r}, which leads"
                " out of ComfyUI's own folders; nothing was fetched"
            )
        kept = name
        while kept in self._names:  # two nodes may use one name in two folders
            kept = f"{node}-{kept}"
        self._names.add(kept)
        with self._api.view(place) as (status, content):
            if status == 404:
                # Cached nodes name files that were deleted since: only without the cache they are made anew.
                self._api.free(unload_models=False)
                raise errors.ServiceRejected(
                    f"ComfyUI has no file {name!r} of node {node} any more; its cache was dropped, so that"
                    " the next run makes it anew",
                    retry=True,
                )
            if status == 400:
                raise errors.ServiceRejected(f"ComfyUI does not give {name!r} of node {node} to anybody")
            return self._results.put(self._job_id, kept, content)


class ComfyUIConnector:
    def __init__(self, options: ComfyUIOptions, around: Around) -> None:
        self._options = options
        self._around = around
        self._api = Api(options, around.clock)
        self._watch: Watch | None = None
        self._model: str | None = None
        self._cancelled: set[str] = set()

    @property
    def name(self) -> str:
        return "comfyui"

    @property
    def capabilities(self) -> protocol.Capabilities:
        return protocol.Capabilities()

    def submit(self, job: protocol.ServiceJob, external_id: str) -> str:
        order = _read(job)
        try:
            changed = None not in {job.model, self._model} and job.model != self._model
            if changed and self._options.free_between_models:
                self._api.free(unload_models=True)
            self._model = job.model or self._model
            limit, results = self._options.upload_limit_mb, self._around.results.for_agent(job.agent)
            names = {(file.node, file.name): upload(self._api, results, file, limit) for file in order.files}
            watch = Watch(job, external_id, workflow.with_inputs(order.workflow, names), self._options, self._around)
            try:
                self._take_up(watch, from_the_start=True)
                return self._hand_over(job, watch, order)
            except errors.SubmissionUnknown:
                raise  # and go on listening: it may run
            except errors.HerdsmanError:
                self._leave()
                raise
        except NotAllowed as error:
            raise errors.ServiceRejected(str(error), retry=True) from error

    def attach(self, job: protocol.ServiceJob, external_id: str) -> None:
        """Where the socket cannot be opened, which is logged, listening tries it again."""
        watch = Watch(job, external_id, _read(job).workflow, self._options, self._around)
        self._take_up(watch, from_the_start=False)

    def listen(self, external_id: str, silence: timedelta) -> protocol.Heard | None:
        watch = self._watch_of(external_id)
        if watch is None:
            self._around.clock.sleep(silence)
            return None
        return watch.listen(silence)

    def check(self, external_id: str) -> protocol.Verdict:
        verdict = read_verdict(self._api, self._around.clock, external_id, self._watch_of(external_id))
        if isinstance(verdict, protocol.Unknown) and external_id in self._cancelled:
            return stopped("it was taken from ComfyUI's queue, as was asked")
        return verdict

    def fetch(self, job: protocol.ServiceJob, external_id: str, finished: protocol.Finished) -> object:
        watch = self._watch_of(external_id)
        harvest = Harvest(self._api, self._around.results.for_agent(job.agent), job.job_id)
        try:
            from_socket = watch.pictures.outputs() if watch is not None and watch.delivered() else {}
            return harvest.gather(finished.outputs, from_socket)
        except errors.InvalidRequest as error:  # too large for the result store, here and anywhere
            raise errors.ServiceRejected(str(error)) from error

    def cancel(self, external_id: str) -> None:
        """Whether it waits or runs may change at any moment, so both are done, each for this id alone."""
        self._cancelled.add(external_id)
        self._api.delete_waiting(external_id)
        if self._api.version() >= INTERRUPTS_BY_ID:
            self._api.interrupt(external_id)
        # An older one stops whatever runs, so we look right before. What starts in between is not safe from it.
        elif is_running(self._api.queue(), external_id):
            self._around.say("this ComfyUI cannot interrupt by id: what runs now is interrupted, which is this job")
            self._api.interrupt(external_id)

    def fitness(self) -> protocol.Fitness:
        return read_fitness(self._api)

    def close(self) -> None:
        self._cancelled.clear()
        self._leave()

    def _take_up(self, watch: Watch, *, from_the_start: bool) -> None:
        """The old socket has to be closed before, since it may have the same name."""
        self._leave()
        self._watch = watch
        watch.open(from_the_start=from_the_start)

    def _leave(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _hand_over(self, job: protocol.ServiceJob, watch: Watch, order: workflow.Order) -> str:
        ours = {"job_id": job.job_id, "attempt": job.attempt, "expect": list(order.expect)}
        answer = self._api.post_prompt(
            {
                "prompt": watch.workflow,
                "prompt_id": watch.external_id,
                # Always: a cached run for nobody ends as a success without outputs.
                "client_id": watch.external_id,
                "extra_data": {OURS: ours},
            }
        )
        if answer.status == 413:
            raise errors.ServiceRejected(
                f"the workflow is larger than ComfyUI takes ({answer.sentence()}); files belong into 'files'"
            )
        reply = answer.object(errors.SubmissionUnknown)
        if answer.status == 400:
            raise workflow.explain(reply, watch.workflow)
        given = as_text(reply.get("prompt_id"))
        if not given:
            raise errors.SubmissionUnknown(f"{answer.sentence()}, without the id of the job")
        watch.external_id = given  # old servers choose it themselves
        dropped = workflow.explain_part(as_object(reply.get("node_errors")), watch.workflow)
        if dropped is not None and not self._options.allow_partial:
            with suppress(errors.HerdsmanError):
                self.cancel(given)
            raise dropped
        if dropped is not None:
            self._around.say(str(dropped))
        return given

    def _watch_of(self, external_id: str) -> Watch | None:
        return self._watch if self._watch is not None and self._watch.external_id == external_id else None


def _read(job: protocol.ServiceJob) -> workflow.Order:
    try:
        return workflow.read_order(job.payload)
    except errors.InvalidRequest as error:
        raise errors.ServiceRejected(str(error)) from error


def find_in_queue(queue: Mapping[str, object], external_id: str) -> protocol.Working | None:
    running = [_id(entry) for entry in as_list(queue.get("queue_running"))]
    if external_id in running:
        return protocol.Working(position=0)
    # They come as a heap: only the number says which is next.
    pending = [_id(entry) for entry in sorted(as_list(queue.get("queue_pending")), key=_number)]
    if external_id not in pending:
        return None
    before = [*running, *pending[: pending.index(external_id)]]
    return protocol.Working(position=len(before), ahead=before[0] if before else None)


def head_of(queue: Mapping[str, object]) -> str | None:
    """What it is at, or would have to be; None while nothing is to be done."""
    running, pending = as_list(queue.get("queue_running")), as_list(queue.get("queue_pending"))
    line = [*running, *sorted(pending, key=_number)]
    return _id(line[0]) or None if line else None


def is_running(queue: Mapping[str, object], external_id: str) -> bool:
    return external_id in [_id(entry) for entry in as_list(queue.get("queue_running"))]


def find_in_history(history: Mapping[str, object], external_id: str) -> Mapping[str, object] | None:
    return as_object(history.get(external_id)) or None


def judge(entry: Mapping[str, object], delivered: Collection[str] = ()) -> protocol.Finished | protocol.Broken:
    """The history of a job that is over; `delivered` are nodes whose images came through the socket.

    The last message comes first: an error between two nodes leaves a history that calls itself a success.
    """
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
        return protocol.Broken(failure=Failure(kind=failed, error=text))
    at = {name: as_number(data.get("timestamp")) for name, data in messages}
    begun, over = at.get("execution_start"), at.get("execution_success")
    seconds = None if begun is None or over is None else max(over - begun, 0.0) / 1000
    outputs, (by_history, by_socket) = as_object(entry.get("outputs")), _needed(entry)
    missing = (by_history - set(outputs) - set(delivered)) | (by_socket - set(delivered))
    if not missing:
        return protocol.Finished(outputs=outputs, seconds=seconds)
    named = ", ".join(sorted(missing))
    text = f"ComfyUI calls it a success, but has no output of node {named}; it has to run again"
    if missing & by_socket:
        text = (
            f"ComfyUI calls it a success, but images of node {named} came through a socket that was not open"
            " all the time, and it keeps none of them; it has to run again (SaveImage would keep them)"
        )
    return protocol.Broken(failure=Failure(kind=FailureClass.INFRASTRUCTURE, error=text))


def stopped(reason: str) -> protocol.Broken:
    return protocol.Broken(failure=Failure(kind=FailureClass.INTERRUPTED, error=reason), cancelled=True)


def _needed(entry: Mapping[str, object]) -> tuple[set[str], set[str]]:
    """The nodes that must have outputs in the history, and those whose images come through the socket.

    By what was sent: the workflow, what we expected of it, and which outputs ComfyUI took.
    """
    _, _, nodes, extra, taken = (item(entry.get("prompt"), at) for at in range(5))
    ours = as_object(as_object(extra).get(OURS))
    classes = {node: as_object(body).get("class_type") for node, body in as_object(nodes).items()}
    by_socket = {node for node, each in classes.items() if each == workflow.SOCKET_SAVER}
    expect = {str(node) for node in as_list(ours.get("expect"))}
    saving = {node for node, each in classes.items() if each in workflow.SAVERS}
    if taken is not None:
        saving &= {str(node) for node in as_list(taken)}
    wanted = expect or saving
    return wanted - by_socket, wanted & by_socket


def _id(entry: object) -> str:
    return as_text(item(entry, 1)) or ""


def _number(entry: object) -> float:
    return as_number(item(entry, 0)) or 0.0


def read_verdict(api: Api, clock: Clock, external_id: str, watch: Watch | None) -> protocol.Verdict:
    """`ServiceUnavailable` where nothing is known, which is never the same as not found (X3-02)."""
    try:
        verdict = _read_once(api, external_id, watch)
        if watch is not None and watch.ended:
            # The end is announced a moment before it is written down.
            deadline = clock.monotonic() + SETTLES.total_seconds()
            while isinstance(verdict, protocol.Working | protocol.Unknown) and clock.monotonic() < deadline:
                clock.sleep(PAUSE)
                verdict = _read_once(api, external_id, watch)
            # What still runs has not ended: it was another run under the same id.
            watch.ended = watch.ended and not isinstance(verdict, protocol.Working)
    except errors.ServiceUnavailable:
        api.forget_version()
        raise
    return watch.known(verdict) if watch is not None and isinstance(verdict, protocol.Working) else verdict


def _read_once(api: Api, external_id: str, watch: Watch | None) -> protocol.Verdict:
    """By the route for jobs where there is one, else by queue and history."""
    status: object = None
    if api.version() >= HAS_JOBS:
        try:
            job = api.job(external_id)
        except NotThere:
            api.forget_version()
        else:
            if job is None:
                return protocol.Unknown(f"ComfyUI knows no job {external_id}")
            status = job.get("status")
    if status == "in_progress":
        return protocol.Working(position=0)
    if status not in ("completed", "failed", "cancelled"):
        # The queue first: in the other order a job that ends between the two reads is in neither.
        waiting = find_in_queue(api.queue(), external_id)
        if waiting is not None or status == "pending":
            return waiting or protocol.Working()  # it may have begun since, and then the next read says so
    entry = find_in_history(api.history(external_id), external_id)
    if entry is None:
        return protocol.Unknown(f"{external_id} is neither in ComfyUI's queue nor in its history")
    return judge(entry, watch.delivered() if watch is not None else ())


def read_fitness(api: Api) -> protocol.Fitness:
    """Never raises: what goes wrong is the fault."""
    try:
        stats, queued = api.system_stats(), api.queue_remaining()
        working_on = head_of(api.queue()) if queued else None
    except errors.HerdsmanError as error:
        return protocol.Fitness(fault=str(error))
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
    return protocol.Fitness(
        fault=fault,
        version=version and one_line(version, 40),
        device=name and one_line(name, 100),
        vram_total_mb=None if total is None else int(total) // MB,
        vram_free_mb=None if free is None else int(free) // MB,
        queued=queued,
        working_on=working_on,
    )
