"""Runs jobs on ComfyUI, one at a time, and loses none that ComfyUI still knows."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from herdsman.connectors.comfyui.api import INTERRUPTS_BY_ID, Api
from herdsman.connectors.comfyui.files import Harvest, upload
from herdsman.connectors.comfyui.fitness import read_fitness
from herdsman.connectors.comfyui.look import Look
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.rejection import Rejection, explain, explain_part
from herdsman.connectors.comfyui.shapes import as_object, as_text
from herdsman.connectors.comfyui.verdict import OURS, is_running, stopped
from herdsman.connectors.comfyui.watch import Watch
from herdsman.connectors.comfyui.wire import Answer, NotAllowed, Wire
from herdsman.connectors.comfyui.workflow import Order, Workflow, read_order, with_inputs
from herdsman.connectors.registry import Around
from herdsman.core.errors import HerdsmanError, InvalidRequest, ServiceRejected, SubmissionUnknown
from herdsman.core.service import Capabilities, Finished, Fitness, Heard, ServiceJob, Unknown, Verdict


class ComfyUIConnector:
    def __init__(self, options: ComfyUIOptions, around: Around) -> None:
        self._options = options
        self._around = around
        self._api = Api(Wire(options, around.clock))
        self._look = Look(self._api, around.clock)
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
            return self._submitted(job, external_id, order)
        except NotAllowed as error:
            raise ServiceRejected(str(error), retry=True) from error

    def attach(self, job: ServiceJob, external_id: str) -> None:
        """Where the socket cannot be opened, which is told, listening tries it again."""
        watch = Watch(job, external_id, _read(job).workflow, self._options, self._around)
        self._take_up(watch, from_the_start=False)

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        watch = self._watch_of(external_id)
        if watch is None:
            self._around.clock.sleep(silence)
            return None
        return watch.listen(silence)

    def check(self, external_id: str) -> Verdict:
        verdict = self._look.at(external_id, self._watch_of(external_id))
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
        else:
            self._interrupt_old(external_id)

    def fitness(self) -> Fitness:
        return read_fitness(self._api)

    def close(self) -> None:
        self._cancelled.clear()
        self._leave()

    def _submitted(self, job: ServiceJob, external_id: str, order: Order) -> str:
        self._free_for(job.model)
        watch = Watch(job, external_id, self._with_files(order, job.agent), self._options, self._around)
        try:
            self._take_up(watch, from_the_start=True)
            return self._hand_over(job, watch, order)
        except SubmissionUnknown:
            raise  # and go on listening: it may run
        except HerdsmanError:
            self._leave()
            raise

    def _free_for(self, model: str | None) -> None:
        changed = None not in {model, self._model} and model != self._model
        if changed and self._options.free_between_models:
            self._api.free(unload_models=True)
        self._model = model or self._model

    def _with_files(self, order: Order, agent: str) -> Workflow:
        limit, results = self._options.upload_limit_mb, self._around.results.for_agent(agent)
        names = {(file.node, file.name): upload(self._api, results, file, limit) for file in order.files}
        return with_inputs(order.workflow, names)

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
        body = _prompt(job, watch.external_id, watch.workflow, order)
        answer = self._api.post_prompt(body)
        if answer.status == 413:
            raise ServiceRejected(
                f"the workflow is larger than ComfyUI takes ({answer.sentence()}); files belong into 'files'"
            )
        told = answer.object(SubmissionUnknown)
        if answer.status == 400:
            raise _rejected(explain(told, watch.workflow))
        return self._taken(answer, told, watch)

    def _taken(self, answer: Answer, told: Mapping[str, object], watch: Watch) -> str:
        given = as_text(told.get("prompt_id"))
        if not given:
            raise SubmissionUnknown(f"{answer.sentence()}, without the id of the job")
        watch.external_id = given  # old servers choose it themselves
        dropped = explain_part(as_object(told.get("node_errors")), watch.workflow)
        if dropped is not None and not self._options.allow_partial:
            with suppress(HerdsmanError):
                self.cancel(given)
            raise _rejected(dropped)
        if dropped is not None:
            self._around.say(dropped.said)
        return given

    def _interrupt_old(self, external_id: str) -> None:
        """It stops whatever runs, so we look right before. What starts in between is not safe from it."""
        if is_running(self._api.queue(), external_id):
            self._around.say(
                "this ComfyUI cannot interrupt by id: what runs now is interrupted, which is this job"
            )
            self._api.interrupt(external_id)

    def _watch_of(self, external_id: str) -> Watch | None:
        return self._watch if self._watch is not None and self._watch.external_id == external_id else None


def _read(job: ServiceJob) -> Order:
    try:
        return read_order(job.payload)
    except InvalidRequest as error:
        raise ServiceRejected(str(error)) from error


def _prompt(job: ServiceJob, external_id: str, workflow: Workflow, order: Order) -> dict[str, object]:
    ours = {"job_id": job.job_id, "attempt": job.attempt, "expect": list(order.expect)}
    return {
        "prompt": workflow,
        "prompt_id": external_id,
        # Always: a cached run for nobody ends as a success without outputs.
        "client_id": external_id,
        "extra_data": {OURS: ours},
    }


def _rejected(why: Rejection) -> ServiceRejected:
    return ServiceRejected(why.said, retry=why.elsewhere)
