"""One job from its first message to its last, in the order in which ComfyUI does it."""

from collections.abc import Iterator
from typing import Any

from herdsman.testing.comfyui.faults import Fault
from herdsman.testing.comfyui.jobs import Job, Past
from herdsman.testing.comfyui.ledger import Render
from herdsman.testing.comfyui.life import Killed, Life
from herdsman.testing.comfyui.setup import now_ms
from herdsman.testing.comfyui.telling import Telling
from herdsman.testing.comfyui.work import Bench, FailedBetweenNodes, Interrupted, Made, NodeFailed, work
from herdsman.testing.comfyui.workflow import in_order, inputs_of, links, signatures

HISTORY_LATE_S = 0.003
"""Between the word of success and the entry in the history; not made shorter by `speed`."""


def run(life: Life, job: Job) -> None:
    """`Killed` if the service dies meanwhile."""
    render = Render(prompt_id=job.prompt_id, client_id=job.client_id, life=life.number)
    life.setup.ledger.note_render(render)
    try:
        if not isinstance(job.extra_data.get("client_id"), str | None):
            life.crash()
        Execution(life, job, render).run()
    except Killed:
        render.end = render.end or "killed"
        raise


class Execution:
    def __init__(self, life: Life, job: Job, render: Render) -> None:
        self._life = life
        self._job = job
        self._render = render
        self._tell = Telling(life, job)
        self._order = in_order(job.workflow, job.outputs)
        self._signatures = signatures(job.workflow, self._order, life.setup.files, life.setup.new_id())
        self._node = ""
        self._made: dict[str, Made] = {}
        self._outputs: dict[str, Any] = {}
        self._done: list[str] = []

    def run(self) -> None:
        self._life.hub.client_id = self._job.client_id
        self._job.started_ms = now_ms()
        self._tell.start()
        try:
            self._work()
        except FailedBetweenNodes as error:
            self._tell.error(self._node, self._done, error)
            self._end("success", completed=True, really="error")
        except NodeFailed as error:
            self._tell.error(self._node, self._done, error, inputs_of(self._job.workflow, self._node))
            self._end("error", completed=False, really="error")
        except Interrupted:
            self._tell.interrupted(self._node, self._done)
            self._end("error", completed=False, really="interrupted")
        else:
            self._tell.success()
            self._end("success", completed=True, really="success")

    def _work(self) -> None:
        cached = [node_id for node_id in self._order if self._signatures[node_id] in self._life.cache]
        self._keep_only_what_this_job_has()
        self._render.cached = tuple(cached)
        self._tell.cached(cached)
        for node_id in cached:
            self._made[node_id] = self._life.cache[self._signatures[node_id]]
        for node_id in self._cached_outputs():
            self._tell_cached(node_id)
        if not self._left():
            self._tell.progress_state()
        for node_id in self._left():
            self._node = node_id
            self._do(node_id)

    def _keep_only_what_this_job_has(self) -> None:
        kept = set(self._signatures.values())
        cache = self._life.cache
        for signature in [each for each in cache if each not in kept]:
            del cache[signature]

    def _cached_outputs(self) -> Iterator[str]:
        return (node_id for node_id in self._job.outputs if node_id in self._made)

    def _left(self) -> list[str]:
        return [node_id for node_id in self._order if node_id not in self._made]

    def _tell_cached(self, node_id: str) -> None:
        """A job without a client id gets no outputs this way: a mistake of ComfyUI, which people meet."""
        ui = self._made[node_id].ui
        if self._job.client_id is not None and ui is not None:
            self._outputs[node_id] = ui
            self._tell.executed(node_id, ui)

    def _do(self, node_id: str) -> None:
        class_type = str(self._job.workflow[node_id]["class_type"])
        if class_type == "HerdsmanCycle":
            raise FailedBetweenNodes(
                "comfy_execution.graph.DependencyCycleError", "Dependency cycle detected"
            )
        self._tell.node_starts(node_id)
        self._life.check_interrupted()
        self._render.worked.append(node_id)
        self._hurt(node_id, class_type)
        made = work(class_type, self._bench(node_id))
        self._made[node_id] = self._life.cache[self._signatures[node_id]] = made
        if made.ui is not None:
            self._outputs[node_id] = made.ui
            self._tell.executed(node_id, made.ui)
        self._tell.node_ends(node_id)
        self._done.append(node_id)

    def _hurt(self, node_id: str, class_type: str) -> None:
        where = (node_id, class_type)
        faults, prompt_id = self._life.setup.faults, self._job.prompt_id
        if faults.strikes(Fault.NODE_HANGS, at=where, prompt_id=prompt_id):
            self._life.hang()
        if faults.strikes(Fault.EXECUTION_DIES, at=where, prompt_id=prompt_id):
            raise Killed
        setting = faults.strikes(Fault.NODE_ERROR, at=where, prompt_id=prompt_id)
        if setting is not None:
            kind = setting.text("kind", "RuntimeError")
            raise NodeFailed(kind, setting.text("message", "the node failed, as it was told to"))

    def _bench(self, node_id: str) -> Bench:
        sources = links(self._job.workflow, node_id)

        def progress(value: int, most: int, picture: bytes | None) -> None:
            self._tell.progress(node_id, value, most, picture)
            self._life.check_interrupted()

        return Bench(
            inputs=inputs_of(self._job.workflow, node_id),
            signature=self._signatures[node_id],
            pictures={name: self._made[source].pictures for name, (source, _) in sources.items()},
            files=self._life.setup.files,
            temp_prefix=f"ComfyUI_temp_{self._signatures[node_id][:5]}",
            sleep=self._life.sleep,
            sleep_unless_interrupted=self._life.sleep_unless_interrupted,
            hang=self._life.hang,
            progress=progress,
            inner=lambda number: self._tell.inner_node(node_id, number),
        )

    def _end(self, status: str, *, completed: bool, really: str) -> None:
        life, job = self._life, self._job
        life.hub.node_id = None
        late = life.setup.faults.strikes(Fault.NO_HISTORY_YET, prompt_id=job.prompt_id)
        if late is not None:
            life.sleep(late.number("seconds", 1.0))
        if life.dead.wait(HISTORY_LATE_S):
            raise Killed
        life.step({"history"}, job.prompt_id)
        self._render.outputs = dict(self._outputs)
        self._render.end = really
        life.jobs.end(
            Past(
                job=job,
                outputs=self._outputs,
                status=status,
                completed=completed,
                messages=self._tell.kept,
                ended_ms=now_ms(),
            )
        )
        life.tell_status()
        self._tell.over()
        life.step({"done"}, job.prompt_id)
