"""One run of the service, from start to restart, and of each job from its first message to its last.

Messages come in the order in which ComfyUI sends them, and the faults strike while they are sent.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from herdsman.testing.fakes.comfyui.faults import Fault, Faults, Setting
from herdsman.testing.fakes.comfyui.files import Files
from herdsman.testing.fakes.comfyui.nodes import (
    FailedBetweenNodes,
    Interrupted,
    NodeContext,
    NodeFailed,
    NodeResult,
    work,
)
from herdsman.testing.fakes.comfyui.prompt_graph import in_order, inputs_of, links, signatures
from herdsman.testing.fakes.comfyui.prompts import Job, Jobs, Ledger, Past, Render, SentMessage
from herdsman.testing.fakes.comfyui.sockets import Hub, status

MEGABYTE = 1024 * 1024
FEATURES = {"supports_preview_metadata": True, "extension": {"manager": {"supports_v4": True}}}


LAST_WORDS_S = 0.05
"""Before a death, so that the answers which are under way get out: the same story each time."""
HISTORY_LATE_S = 0.003
"""Between the word of success and the entry in the history; not made shorter by `speed`."""
ENDS = frozenset({"execution_success", "execution_error", "execution_interrupted", "executing:null"})
SOCKET_FAULTS = (Fault.DUPLICATE_CLIENT, Fault.DEAF_SOCKET, Fault.CUT_SOCKET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    version: tuple[int, ...]
    speed: float
    random: Random
    most_upload_bytes: int = 100 * MEGABYTE
    faults: Faults = field(default_factory=Faults)
    ledger: Ledger = field(default_factory=Ledger)
    files: Files = field(default_factory=Files)

    @property
    def version_text(self) -> str:
        return ".".join(str(part) for part in self.version)

    def new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    # What came with which version.

    @property
    def takes_our_id(self) -> bool:
        return self.version >= (0, 3, 45)

    @property
    def interrupts_by_id(self) -> bool:
        return self.version >= (0, 3, 57)

    @property
    def has_jobs(self) -> bool:
        return self.version >= (0, 6, 0)

    @property
    def wants_canonical_ids(self) -> bool:
        return self.version >= (0, 25, 0)

    @property
    def cancels_jobs(self) -> bool:
        return self.version >= (0, 26, 0)


def read_version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ValueError(f"{text!r} is no version; write one such as 0.7.0")
    return tuple(int(part) for part in text.split("."))


def now_ms() -> int:
    return int(time.time() * 1000)


class Killed(Exception):
    """This run of the service is over; whatever was going on in it ends here."""


class Life:
    """One run of the service, from start to restart: what it forgets when it ends."""

    def __init__(
        self,
        setup: Setup,
        die: Callable[[Setting | None], None],
        *,
        number: int = 0,
        history: dict[str, Past] | None = None,
    ) -> None:
        self.number = number
        self.setup = setup
        self.hub = Hub(self.features())
        self.jobs = Jobs(history)
        self.cache: dict[str, NodeResult] = {}
        self.dead = threading.Event()
        self.next_number = 0
        self._die = die
        self._interrupted = False
        self._drop_cache = False
        # Set by an interrupt and by death: both end the sleep of a node that can be interrupted.
        self._roused = threading.Event()
        self._thread = threading.Thread(target=self._work, name="fake-comfyui-work", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """At once, in the middle of anything. May be called from anywhere, also from within."""
        self.dead.set()
        self._roused.set()
        self.jobs.close()
        self.hub.cut_all()

    def join(self) -> None:
        self._thread.join()

    def features(self) -> dict[str, Any]:
        return {**FEATURES, "max_upload_size": self.setup.most_upload_bytes}

    def queue(self, job: Job) -> bool:
        """False if the service trips over it: see `Jobs.put`."""
        smooth = self.jobs.put(job)
        self.send_status()
        return smooth

    def send_status(self) -> None:
        self.hub.send("status", status(self.jobs.remaining), None)

    def interrupt(self) -> None:
        """Whatever runs, at the next chance."""
        self._interrupted = True
        self._roused.set()

    def check_interrupted(self) -> None:
        if self._interrupted:
            raise Interrupted

    @property
    def holds_memory(self) -> bool:
        return bool(self.cache) and not self._drop_cache

    def free_memory(self) -> None:
        """Answered at once, done after the job that runs."""
        self._drop_cache = True

    def sleep(self, seconds: float) -> None:
        if self.dead.wait(seconds / self.setup.speed):
            raise Killed

    def sleep_unless_interrupted(self, seconds: float) -> None:
        self._roused.wait(seconds / self.setup.speed)
        if self.dead.is_set():
            raise Killed
        self.check_interrupted()

    def hang(self) -> None:
        self.dead.wait()
        raise Killed

    def step(self, at: Collection[str], prompt_id: str) -> None:
        """A moment in the life of a job: here the service may die."""
        if self.dead.is_set():
            raise Killed
        setting = self.setup.faults.strikes(Fault.RESTART, at=at, prompt_id=prompt_id)
        if setting is not None:
            self.dead.wait(LAST_WORDS_S)
            self._die(setting)
            raise Killed

    def crash(self) -> None:
        """The end, until somebody starts it again."""
        self.dead.wait(LAST_WORDS_S)
        self._die(None)
        raise Killed

    def _work(self) -> None:
        try:
            while (job := self.jobs.take()) is not None:
                if self._drop_cache:
                    self.cache.clear()
                    self._drop_cache = False
                self._interrupted = False
                self._roused.clear()
                self.send_status()
                run(self, job)
        except Killed:
            return


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
        self._messages = JobMessages(life, job)
        self._order = in_order(job.workflow, job.outputs)
        self._signatures = signatures(job.workflow, self._order, life.setup.files, life.setup.new_id())
        self._node = ""
        self._made: dict[str, NodeResult] = {}
        self._outputs: dict[str, Any] = {}
        self._done: list[str] = []

    def run(self) -> None:
        self._life.hub.client_id = self._job.client_id
        self._job.started_ms = now_ms()
        self._messages.keep("execution_start", {})
        try:
            self._work()
        except FailedBetweenNodes as error:
            self._messages.error(self._node, self._done, error)
            self._end("success", completed=True, really="error")
        except NodeFailed as error:
            self._messages.error(self._node, self._done, error, inputs_of(self._job.workflow, self._node))
            self._end("error", completed=False, really="error")
        except Interrupted:
            self._messages.interrupted(self._node, self._done)
            self._end("error", completed=False, really="interrupted")
        else:
            self._messages.keep("execution_success", {})
            self._end("success", completed=True, really="success")

    def _work(self) -> None:
        cache = self._life.cache
        cached = [node_id for node_id in self._order if self._signatures[node_id] in cache]
        left = [node_id for node_id in self._order if node_id not in cached]
        # Nothing is kept but what this job has, too.
        for signature in set(cache) - set(self._signatures.values()):
            del cache[signature]
        self._render.cached = tuple(cached)
        self._messages.keep("execution_cached", {"nodes": cached})
        for node_id in cached:
            self._made[node_id] = cache[self._signatures[node_id]]
        # A job without a client id gets no outputs this way: a mistake of ComfyUI, which people meet.
        for node_id in self._job.outputs if self._job.client_id is not None else ():
            ui = self._made[node_id].ui if node_id in self._made else None
            if ui is not None:
                self._outputs[node_id] = ui
                self._messages.executed(node_id, ui)
        if not left:
            self._messages.progress_state()
        for node_id in left:
            self._node = node_id
            self._do(node_id)

    def _do(self, node_id: str) -> None:
        class_type = str(self._job.workflow[node_id]["class_type"])
        if class_type == "HerdsmanCycle":
            raise FailedBetweenNodes(
                "comfy_execution.graph.DependencyCycleError", "Dependency cycle detected"
            )
        self._messages.node_starts(node_id)
        self._life.check_interrupted()
        self._render.worked.append(node_id)
        self._hurt(node_id, class_type)
        made = work(class_type, self._context(node_id))
        self._made[node_id] = self._life.cache[self._signatures[node_id]] = made
        if made.ui is not None:
            self._outputs[node_id] = made.ui
            self._messages.executed(node_id, made.ui)
        self._messages.node_ends(node_id)
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

    def _context(self, node_id: str) -> NodeContext:
        sources = links(self._job.workflow, node_id)

        def progress(value: int, most: int, picture: bytes | None) -> None:
            self._messages.progress(node_id, value, most, picture)
            self._life.check_interrupted()

        return NodeContext(
            inputs=inputs_of(self._job.workflow, node_id),
            signature=self._signatures[node_id],
            pictures={name: self._made[source].pictures for name, (source, _) in sources.items()},
            files=self._life.setup.files,
            temp_prefix=f"ComfyUI_temp_{self._signatures[node_id][:5]}",
            sleep=self._life.sleep,
            sleep_unless_interrupted=self._life.sleep_unless_interrupted,
            hang=self._life.hang,
            progress=progress,
            inner=lambda number: self._messages.inner_node(node_id, number),
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
                messages=self._messages.kept,
                ended_ms=now_ms(),
            )
        )
        life.send_status()
        self._messages.over()
        life.step({"done"}, job.prompt_id)


class JobMessages:
    """Most is for the client of the job alone. Without one, some goes to everybody, and the rest to nobody."""

    def __init__(self, life: Life, job: Job) -> None:
        self._life = life
        self._job = job
        self._nodes: dict[str, dict[str, Any]] = {}
        self.kept: list[list[Any]] = []
        """The messages that the history shows."""

    def error(
        self, node_id: str, done: Sequence[str], error: NodeFailed, inputs: dict[str, Any] | None = None
    ) -> None:
        self.keep(
            "execution_error",
            {
                **self._at(node_id, done),
                "exception_message": str(error),
                "exception_type": error.kind,
                "traceback": [f'  File "/opt/ComfyUI/execution.py", line 510, in execute\n    {error}\n'],
                "current_inputs": {name: [value] for name, value in (inputs or {}).items()},
                "current_outputs": list(done),
            },
        )

    def interrupted(self, node_id: str, done: Sequence[str]) -> None:
        self.keep("execution_interrupted", self._at(node_id, done), everybody=True)

    def node_starts(self, node_id: str) -> None:
        self._node(node_id, 0.0, 1.0, "running")
        self.progress_state()
        self._life.hub.node_id = node_id
        self._send("executing", {"node": node_id, "display_node": node_id})

    def node_ends(self, node_id: str) -> None:
        most = self._nodes[node_id]["max"]
        self._node(node_id, most, most, "finished")
        self.progress_state()

    def inner_node(self, node_id: str, number: int) -> None:
        """As a node does that stands for several, and has a word of its own that nobody else knows."""
        inner = f"{node_id}.0.0.{number}"
        self._node(inner, 1.0, 1.0, "finished")
        self._nodes[inner].update(display_node_id=node_id, parent_node_id=node_id)
        self._send("executing", {"node": inner, "display_node": node_id})
        self.progress_state()
        self._send("herdsman_news", {"number": number})

    def progress(self, node_id: str, value: int, most: int, picture: bytes | None) -> None:
        self._node(node_id, float(value), float(most), "running")
        self.progress_state()
        self._send("progress", {"value": value, "max": most, "node": node_id}, everybody=True)
        if picture is not None:
            names = ("node_id", "display_node_id", "real_node_id")
            metadata = {**dict.fromkeys(names, node_id), "parent_node_id": None}
            metadata["prompt_id"] = self._job.prompt_id
            self._life.hub.show(picture, metadata, self._job.client_id)

    def progress_state(self) -> None:
        self._send("progress_state", {"nodes": dict(self._nodes)}, everybody=True)

    def executed(self, node_id: str, ui: dict[str, Any]) -> None:
        self._send("executed", {"node": node_id, "display_node": node_id, "output": ui})

    def over(self) -> None:
        self._send("executing", {"node": None})

    def _at(self, node_id: str, done: Sequence[str]) -> dict[str, Any]:
        class_type = self._job.workflow[node_id]["class_type"]
        return {"node_id": node_id, "node_type": class_type, "executed": list(done)}

    def _node(self, node_id: str, value: float, most: float, state: str) -> None:
        self._nodes[node_id] = {
            "value": value,
            "max": most,
            "state": state,
            "node_id": node_id,
            "prompt_id": self._job.prompt_id,
            "display_node_id": node_id,
            "parent_node_id": None,
            "real_node_id": node_id,
        }

    def keep(self, kind: str, data: dict[str, Any], *, everybody: bool = False) -> None:
        data = {"prompt_id": self._job.prompt_id, **data, "timestamp": now_ms()}
        self.kept.append([kind, data])
        self._send(kind, data, everybody=everybody)

    def _send(self, kind: str, data: dict[str, Any], *, everybody: bool = False) -> None:
        """To the client of the job; `everybody` hears it if there is none."""
        job = self._job
        data = {**data, "prompt_id": job.prompt_id}
        job.messages_sent += 1
        at = _names(kind, data, job.messages_sent)
        self._life.step(at, job.prompt_id)
        self._hurt_socket(at)
        heard = False
        if not self._withheld(at) and (job.client_id is not None or everybody):
            heard = self._life.hub.send(kind, data, job.client_id)
        message = SentMessage(prompt_id=job.prompt_id, type=kind, data=data, heard=heard)
        self._life.setup.ledger.note_message(message)

    def _withheld(self, at: frozenset[str]) -> bool:
        """Without `at` the fault is for the end as a whole: all its messages, and one hit."""
        job = self._job
        if not at & ENDS or job.silenced:
            return bool(at & ENDS)
        fault = self._life.setup.faults.strikes(
            Fault.COMPLETION_NEVER_SENT, at=at & ENDS, prompt_id=job.prompt_id
        )
        job.silenced = fault is not None and fault.at is None
        return fault is not None

    def _hurt_socket(self, at: frozenset[str]) -> None:
        client_id = self._job.client_id
        for fault in SOCKET_FAULTS:
            socket = self._life.hub.find(client_id)
            if client_id is None or socket is None:
                return
            if not self._life.setup.faults.strikes(fault, at=at, prompt_id=self._job.prompt_id):
                continue
            if fault is Fault.CUT_SOCKET:
                self._life.hub.cut(socket, client_id)
            elif fault is Fault.DEAF_SOCKET:
                socket.go_deaf()
            else:
                self._life.hub.unregister(client_id)


def _names(kind: str, data: dict[str, Any], number: int) -> frozenset[str]:
    """By what a fault may be tied to this message. The last message has a name of its own, for it ends the job."""
    node = data.get("node", data.get("node_id", ""))
    if kind == "executing" and node is None:
        return frozenset({"executing:null", str(number)})
    return frozenset({kind, f"{kind}:{node}", str(number)})
