"""Runs jobs on ComfyUI, one at a time, with their files, and loses none that ComfyUI still knows."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from herdsman.connectors.comfyui.api import INTERRUPTS_BY_ID, Api, NotAllowed
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_list, as_object, as_text
from herdsman.connectors.comfyui.verdict import OURS, is_running, read_fitness, read_verdict, stopped
from herdsman.connectors.comfyui.watch import Watch
from herdsman.connectors.comfyui.workflow import (
    InputFile,
    Order,
    explain,
    explain_part,
    read_order,
    with_inputs,
)
from herdsman.connectors.registry import Around
from herdsman.errors import (
    Forbidden,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    ServiceRejected,
    SubmissionUnknown,
)
from herdsman.jobs.protocol import (
    Capabilities,
    Finished,
    Fitness,
    Heard,
    ServiceJob,
    StoredFile,
    Unknown,
    Verdict,
)
from herdsman.ports import ResultStore

MB = 1024 * 1024
LONGEST_NAME = 100


def upload(api: Api, results: ResultStore, file: InputFile, limit_mb: int) -> str:
    """The name under which ComfyUI has it now."""
    with tempfile.TemporaryFile() as content:
        try:
            size = 0
            for chunk in results.read(file.reference):
                size += len(chunk)
                if size > limit_mb * MB:
                    raise InvalidRequest(  # noqa: TRY301  (as what the store refuses)
                        f"{file.reference[:200]!r} is larger than {limit_mb} MB; where ComfyUI takes more, raise the"
                        " option upload_limit_mb"
                    )
                content.write(chunk)
        except (NotFound, Forbidden, InvalidRequest) as error:
            # A file of this machine's own directory may be there on another.
            here_only = isinstance(error, NotFound) and file.reference.startswith("file:")
            said = f"the file for node {file.node}, input {file.name!r}, cannot be used: {error}"
            raise ServiceRejected(said, retry=here_only) from error
        content.seek(0)
        last = PurePosixPath(unquote(urlsplit(file.reference).path)).name
        plain = "".join(
            each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in last
        )
        return api.upload(plain.lstrip(".")[-LONGEST_NAME:] or "input", content)


@dataclass
class Harvest:
    """Brings what a job has made into the result store, and says it as JSON."""

    _api: Api
    _results: ResultStore
    _job_id: str
    _names: set[str] = field(default_factory=set[str])

    def gather(
        self, outputs: Mapping[str, object], from_socket: Mapping[str, Sequence[StoredFile]]
    ) -> dict[str, Any]:
        """The same outputs give the same, byte for byte, whoever asks and however often."""

        def by_number(node: str) -> tuple[tuple[int, int, str], ...]:
            """9 before 12, and both before names."""
            return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in node.split("."))

        files: list[dict[str, object]] = []
        values: dict[str, dict[str, object]] = {}
        for node in sorted({*outputs, *from_socket}, key=by_number):
            made: list[tuple[str, StoredFile]] = [("images", stored) for stored in from_socket.get(node, ())]
            for kind, found in as_object(outputs.get(node)).items():
                entries = [(each, as_object(each)) for each in as_list(found)]
                made += [
                    (kind, self._bring(node, fields))
                    for _, fields in entries
                    if isinstance(fields.get("filename"), str)
                ]
                texts = [
                    each
                    for each, _ in entries
                    if isinstance(each, str | int | float) and not isinstance(each, bool)
                ]
                if texts:
                    values.setdefault(node, {})[kind] = texts
            for kind, stored in made:
                files.append({"node": node, "kind": kind, **asdict(stored)})
        return {"outputs": files, "values": values}

    def _bring(self, node: str, said: Mapping[str, object]) -> StoredFile:
        place = {part: as_text(said.get(part)) or "" for part in ("filename", "subfolder", "type")}
        name, folder = place["filename"], place["subfolder"]
        if ".." in f"{folder}/{name}".replace("\\", "/").split("/") or name.startswith("/") or not name:
            raise ServiceRejected(
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
                raise ServiceRejected(
                    f"ComfyUI has no file {name!r} of node {node} any more; its cache was dropped, so that"
                    " the next run makes it anew",
                    retry=True,
                )
            if status == 400:
                raise ServiceRejected(f"ComfyUI does not give {name!r} of node {node} to anybody")
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
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def submit(self, job: ServiceJob, external_id: str) -> str:
        order = _read(job)
        try:
            changed = None not in {job.model, self._model} and job.model != self._model
            if changed and self._options.free_between_models:
                self._api.free(unload_models=True)
            self._model = job.model or self._model
            limit, results = self._options.upload_limit_mb, self._around.results.for_agent(job.agent)
            names = {(file.node, file.name): upload(self._api, results, file, limit) for file in order.files}
            watch = Watch(job, external_id, with_inputs(order.workflow, names), self._options, self._around)
            try:
                self._take_up(watch, from_the_start=True)
                return self._hand_over(job, watch, order)
            except SubmissionUnknown:
                raise  # and go on listening: it may run
            except HerdsmanError:
                self._leave()
                raise
        except NotAllowed as error:
            raise ServiceRejected(str(error), retry=True) from error

    def attach(self, job: ServiceJob, external_id: str) -> None:
        """Where the socket cannot be opened, which is logged, listening tries it again."""
        watch = Watch(job, external_id, _read(job).workflow, self._options, self._around)
        self._take_up(watch, from_the_start=False)

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        watch = self._watch_of(external_id)
        if watch is None:
            self._around.clock.sleep(silence)
            return None
        return watch.listen(silence)

    def check(self, external_id: str) -> Verdict:
        verdict = read_verdict(self._api, self._around.clock, external_id, self._watch_of(external_id))
        if isinstance(verdict, Unknown) and external_id in self._cancelled:
            return stopped("it was taken from ComfyUI's queue, as was asked")
        return verdict

    def fetch(self, job: ServiceJob, external_id: str, finished: Finished) -> object:
        watch = self._watch_of(external_id)
        harvest = Harvest(self._api, self._around.results.for_agent(job.agent), job.job_id)
        try:
            from_socket = watch.pictures.outputs() if watch is not None and watch.delivered() else {}
            return harvest.gather(finished.outputs, from_socket)
        except InvalidRequest as error:  # too large for the result store, here and anywhere
            raise ServiceRejected(str(error)) from error

    def cancel(self, external_id: str) -> None:
        """Whether it waits or runs may change at any moment, so both are done, each for this id alone."""
        self._cancelled.add(external_id)
        self._api.delete_waiting(external_id)
        if self._api.version() >= INTERRUPTS_BY_ID:
            self._api.interrupt(external_id)
        # An older one stops whatever runs, so we look right before. What starts in between is not safe from it.
        elif is_running(self._api.queue(), external_id):
            self._around.say(
                "this ComfyUI cannot interrupt by id: what runs now is interrupted, which is this job"
            )
            self._api.interrupt(external_id)

    def fitness(self) -> Fitness:
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

    def _hand_over(self, job: ServiceJob, watch: Watch, order: Order) -> str:
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
            raise ServiceRejected(
                f"the workflow is larger than ComfyUI takes ({answer.sentence()}); files belong into 'files'"
            )
        reply = answer.object(SubmissionUnknown)
        if answer.status == 400:
            raise explain(reply, watch.workflow)
        given = as_text(reply.get("prompt_id"))
        if not given:
            raise SubmissionUnknown(f"{answer.sentence()}, without the id of the job")
        watch.external_id = given  # old servers choose it themselves
        dropped = explain_part(as_object(reply.get("node_errors")), watch.workflow)
        if dropped is not None and not self._options.allow_partial:
            with suppress(HerdsmanError):
                self.cancel(given)
            raise dropped
        if dropped is not None:
            self._around.say(str(dropped))
        return given

    def _watch_of(self, external_id: str) -> Watch | None:
        return self._watch if self._watch is not None and self._watch.external_id == external_id else None


def _read(job: ServiceJob) -> Order:
    try:
        return read_order(job.payload)
    except InvalidRequest as error:
        raise ServiceRejected(str(error)) from error
