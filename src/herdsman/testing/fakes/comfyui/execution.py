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
from herdsman.testing.fakes.comfyui.files import Files, Outside, Place, input_place
from herdsman.testing.fakes.comfyui.nodes import KNOWN_STARTS, digest, png
from herdsman.testing.fakes.comfyui.prompt_graph import in_order, inputs_of, links, signatures
from herdsman.testing.fakes.comfyui.prompts import Job, Jobs, Ledger, Past, Render, SentMessage
from herdsman.testing.fakes.comfyui.sockets import Hub, status

MEGABYTE = 1024 * 1024
FEATURES = {"supports_preview_metadata": True, "extension": {"manager": {"supports_v4": True}}}
LAST_WORDS_S = 0.05
"""Before a death, so that the answers which are under way get out: the same story each time."""
HISTORY_LATE_S = 0.003
"""Between the word of success and the entry in the history; not made shorter by `speed`."""
STEP_S = 0.01
PREVIEW_SIDE = 8
ENDS = frozenset({"execution_success", "execution_error", "execution_interrupted", "executing:null"})
SOCKET_FAULTS = (Fault.DUPLICATE_CLIENT, Fault.DEAF_SOCKET, Fault.CUT_SOCKET)

# The first versions that have it.
TAKES_OUR_ID, INTERRUPTS_BY_ID, HAS_JOBS = (0, 3, 45), (0, 3, 57), (0, 6, 0)
WANTS_CANONICAL_IDS, CANCELS_JOBS = (0, 25, 0), (0, 26, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    version: tuple[int, ...]
    speed: float
    random: Random
    most_upload_bytes: int = 100 * MEGABYTE
    faults: Faults = field(default_factory=Faults)
    ledger: Ledger = field(default_factory=Ledger)
    files: Files = field(default_factory=Files)

    def new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))


def read_version(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ValueError(f"{text!r} is no version; write one such as 0.7.0")
    return tuple(int(part) for part in text.split("."))


def now_ms() -> int:
    return int(time.time() * 1000)


class Killed(Exception):
    """This run of the service is over; whatever was going on in it ends here."""


class NodeFailed(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class FailedBetweenNodes(NodeFailed):
    """Found while the next node is picked; ComfyUI then calls the job a success."""


class Interrupted(Exception):
    """Somebody asked for the end of the job."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What a node leaves: pictures for the next ones, and files or texts for people."""

    pictures: tuple[str, ...]
    """A digest for each."""
    ui: dict[str, Any] | None = None


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
        self.drop_cache = False
        """Set by a request, done before the next job."""
        self._die = die
        self._interrupted = False
        # Set by an interrupt and by death: both end the sleep of a node that can be interrupted.
        self._roused = threading.Event()
        self.thread = threading.Thread(target=self._work, name="fake-comfyui-work", daemon=True)

    def end(self) -> None:
        """At once, in the middle of anything. May be called from anywhere, also from within."""
        self.dead.set()
        self._roused.set()
        self.jobs.close()
        self.hub.cut_all()

    def features(self) -> dict[str, Any]:
        return {**FEATURES, "max_upload_size": self.setup.most_upload_bytes}

    def send_status(self) -> None:
        self.hub.send("status", status(self.jobs.remaining), None)

    def interrupt(self) -> None:
        """Whatever runs, at the next chance."""
        self._interrupted = True
        self._roused.set()

    def check_interrupted(self) -> None:
        if self._interrupted:
            raise Interrupted

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

    def _work(self) -> None:
        try:
            while (job := self.jobs.take()) is not None:
                if self.drop_cache:
                    self.cache.clear()
                    self.drop_cache = False
                self._interrupted = False
                self._roused.clear()
                self.send_status()
                self._run(job)
        except Killed:
            return

    def _run(self, job: Job) -> None:
        render = Render(prompt_id=job.prompt_id, client_id=job.client_id, life=self.number)
        self.setup.ledger.renders.append(render)
        if not isinstance(job.extra_data.get("client_id"), str | None):
            # As there: the service dies of it, until somebody starts it again.
            render.end = "killed"
            self.dead.wait(LAST_WORDS_S)
            self._die(None)
            raise Killed
        try:
            Execution(self, job, render).run()
        except Killed:
            render.end = render.end or "killed"
            raise


class Execution:
    def __init__(self, life: Life, job: Job, render: Render) -> None:
        self._life = life
        self._job = job
        self._render = render
        self._order = in_order(job.workflow, job.outputs)
        self._signatures = signatures(job.workflow, self._order, life.setup.files, life.setup.new_id())
        self._node = ""
        self._made: dict[str, NodeResult] = {}
        self._outputs: dict[str, Any] = {}
        self._done: list[str] = []
        self._states: dict[str, dict[str, Any]] = {}
        self._kept: list[list[Any]] = []
        """The messages that the history shows."""
        self._sent = 0
        self._silenced = False
        """No client gets word of its end."""

    def run(self) -> None:
        self._life.hub.client_id = self._job.client_id
        self._job.started_ms = now_ms()
        self._keep("execution_start", {})
        try:
            self._work()
        except FailedBetweenNodes as error:
            self._say_error(error, {})
            self._end("success", really="error")
        except NodeFailed as error:
            self._say_error(error, inputs_of(self._job.workflow, self._node))
            self._end("error", really="error")
        except Interrupted:
            self._keep("execution_interrupted", self._at(), everybody=True)
            self._end("error", really="interrupted")
        else:
            self._keep("execution_success", {})
            self._end("success", really="success")

    def _work(self) -> None:
        cache = self._life.cache
        cached = [node_id for node_id in self._order if self._signatures[node_id] in cache]
        left = [node_id for node_id in self._order if node_id not in cached]
        # Nothing is kept but what this job has, too.
        for signature in set(cache) - set(self._signatures.values()):
            del cache[signature]
        self._render.cached = tuple(cached)
        self._keep("execution_cached", {"nodes": cached})
        for node_id in cached:
            self._made[node_id] = cache[self._signatures[node_id]]
        # A job without a client id gets no outputs this way: a mistake of ComfyUI, which people meet.
        for node_id in self._job.outputs if self._job.client_id is not None else ():
            ui = self._made[node_id].ui if node_id in self._made else None
            if ui is not None:
                self._say_executed(node_id, ui)
        if not left:
            self._say_states()
        for node_id in left:
            self._node = node_id
            self._do(node_id, str(self._job.workflow[node_id]["class_type"]))

    def _do(self, node_id: str, class_type: str) -> None:
        if class_type == "HerdsmanCycle":
            raise FailedBetweenNodes("comfy_execution.graph.DependencyCycleError", "Dependency cycle detected")
        self._states[node_id] = self._state(node_id, 0.0, 1.0, "running")
        self._say_states()
        self._life.hub.node_id = node_id
        self._send("executing", {"node": node_id, "display_node": node_id})
        self._life.check_interrupted()
        self._render.worked.append(node_id)
        where, faults, prompt_id = (node_id, class_type), self._life.setup.faults, self._job.prompt_id
        if faults.strikes(Fault.NODE_HANGS, at=where, prompt_id=prompt_id):
            self._life.hang()
        if faults.strikes(Fault.EXECUTION_DIES, at=where, prompt_id=prompt_id):
            raise Killed
        if (setting := faults.strikes(Fault.NODE_ERROR, at=where, prompt_id=prompt_id)) is not None:
            kind = setting.text("kind", "RuntimeError")
            raise NodeFailed(kind, setting.text("message", "the node failed, as the fault says"))
        made = self._made_by(node_id, class_type)
        self._made[node_id] = self._life.cache[self._signatures[node_id]] = made
        if made.ui is not None:
            self._say_executed(node_id, made.ui)
        most = self._states[node_id]["max"]
        self._states[node_id] = self._state(node_id, most, most, "finished")
        self._say_states()
        self._done.append(node_id)

    def _made_by(self, node_id: str, class_type: str) -> NodeResult:
        signature, inputs = self._signatures[node_id], inputs_of(self._job.workflow, node_id)
        given = {name: self._made[source].pictures for name, (source, _) in links(self._job.workflow, node_id).items()}
        batch = max((len(each) for each in given.values()), default=1)
        match class_type:
            case "EmptyLatentImage" | "EmptyImage":
                batch = int(_number(inputs, "batch_size", 1))
            case "KSampler":
                steps, seconds = int(_number(inputs, "steps", 1)), _number(inputs, "seconds", STEP_S)
                for step in range(1, steps + 1):
                    self._life.sleep(seconds)
                    self._say_progress(node_id, step, steps, png(digest(signature, step), PREVIEW_SIDE))
            case "LoadImage":
                place = input_place(str(inputs.get("image", "")))
                file, named = self._life.setup.files.find(place), f"'{place.filename}'"
                if file is None:
                    raise NodeFailed("FileNotFoundError", f"[Errno 2] No such file or directory: {named}")
                if not file.content.startswith(KNOWN_STARTS):
                    raise NodeFailed("PIL.UnidentifiedImageError", f"cannot identify image file {named}")
                return NodeResult((digest(file.content.hex()),))
            case "SaveImage":
                return self._saved(given["images"], str(inputs.get("filename_prefix", "")), "output")
            case "PreviewImage":
                return self._saved(given["images"], f"ComfyUI_temp_{signature[:5]}", "temp")
            case "SaveImageWebsocket":
                for number, picture in enumerate(given["images"]):
                    self._say_progress(node_id, number, len(given["images"]), png(picture))
                return NodeResult(())
            case _:
                pass
        pictures = tuple(digest(signature, number) for number in range(batch))
        return NodeResult(pictures, self._shown_by(node_id, class_type, signature, inputs))

    def _shown_by(self, node_id: str, class_type: str, signature: str, inputs: dict[str, Any]) -> dict[str, Any] | None:
        """The nodes that ComfyUI does not have; they hand on what they are given, and may show something."""
        life, files = self._life, self._life.setup.files
        match class_type:
            case "HerdsmanSleep":
                life.sleep(_number(inputs, "seconds"))
            case "HerdsmanInterruptible":
                life.sleep_unless_interrupted(_number(inputs, "seconds"))
            case "HerdsmanFail":
                raise NodeFailed("RuntimeError", str(inputs["message"]))
            case "HerdsmanOutOfMemory":
                said = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 is full."
                raise NodeFailed("torch.OutOfMemoryError", said)
            case "HerdsmanHang":
                life.hang()
            case "HerdsmanHuge":
                place = files.next_place("huge", "output", "bin")
                files.put(place, signature.encode(), int(_number(inputs, "megabytes")) * MEGABYTE)
                return {"files": [place.shown()]}
            case "HerdsmanPreview":
                # In one large frame; what follows the end of a PNG is ignored by whoever reads it.
                picture = png(signature) + bytes(int(_number(inputs, "megabytes")) * MEGABYTE)
                self._say_progress(node_id, 1, 1, picture)
            case "HerdsmanExpand":
                self._say_inner(node_id, 0)
                self._say_inner(node_id, 1)
            case "HerdsmanText":
                return {"text": [str(inputs["text"])]}
            case "HerdsmanName":
                # Whatever the name, the file can be had under it: a service that lies would do so too.
                place = Place(str(inputs["filename"]))
                files.put(place, png(signature))
                return {"images": [place.shown()]}
            case _:
                pass
        return None

    def _saved(self, pictures: Sequence[str], prefix: str, folder: str) -> NodeResult:
        files, shown = self._life.setup.files, list[dict[str, str]]()
        for picture in pictures:
            try:
                place = files.next_place(prefix, folder)
            except Outside as error:
                said = "Saving image outside the output folder is not allowed."
                raise NodeFailed("Exception", said) from error
            files.put(place, png(picture))
            shown.append(place.shown())
        return NodeResult((), {"images": shown})

    def _end(self, status: str, *, really: str) -> None:
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
        life.jobs.end(Past(job=job, outputs=self._outputs, status=status, messages=self._kept, ended_ms=now_ms()))
        life.send_status()
        self._send("executing", {"node": None})
        life.step({"done"}, job.prompt_id)

    # What is said of the job. Most is for its client alone. Without one, some goes to everybody, and the rest to nobody.

    def _at(self) -> dict[str, Any]:
        class_type = self._job.workflow[self._node]["class_type"]
        return {"node_id": self._node, "node_type": class_type, "executed": list(self._done)}

    def _say_error(self, error: NodeFailed, inputs: dict[str, Any]) -> None:
        self._keep(
            "execution_error",
            {
                **self._at(),
                "exception_message": str(error),
                "exception_type": error.kind,
                "traceback": [f'  File "/opt/ComfyUI/execution.py", line 510, in execute\n    {error}\n'],
                "current_inputs": {name: [value] for name, value in inputs.items()},
                "current_outputs": list(self._done),
            },
        )

    def _say_executed(self, node_id: str, ui: dict[str, Any]) -> None:
        self._outputs[node_id] = ui
        self._send("executed", {"node": node_id, "display_node": node_id, "output": ui})

    def _say_inner(self, node_id: str, number: int) -> None:
        """As a node does that stands for several, and has a word of its own that nobody else knows."""
        inner = f"{node_id}.0.0.{number}"
        self._states[inner] = self._state(inner, 1.0, 1.0, "finished", within=node_id)
        self._send("executing", {"node": inner, "display_node": node_id})
        self._say_states()
        self._send("herdsman_news", {"number": number})

    def _say_progress(self, node_id: str, value: int, most: int, picture: bytes) -> None:
        self._states[node_id] = self._state(node_id, float(value), float(most), "running")
        self._say_states()
        self._send("progress", {"value": value, "max": most, "node": node_id}, everybody=True)
        names = ("node_id", "display_node_id", "real_node_id")
        metadata = {**dict.fromkeys(names, node_id), "parent_node_id": None, "prompt_id": self._job.prompt_id}
        self._life.hub.show(picture, metadata, self._job.client_id)
        self._life.check_interrupted()

    def _say_states(self) -> None:
        self._send("progress_state", {"nodes": dict(self._states)}, everybody=True)

    def _state(self, node_id: str, value: float, most: float, state: str, within: str | None = None) -> dict[str, Any]:
        return {
            "value": value,
            "max": most,
            "state": state,
            "node_id": node_id,
            "prompt_id": self._job.prompt_id,
            "display_node_id": within or node_id,
            "parent_node_id": within,
            "real_node_id": node_id,
        }

    def _keep(self, kind: str, data: dict[str, Any], *, everybody: bool = False) -> None:
        """Also for the history."""
        data = {"prompt_id": self._job.prompt_id, **data, "timestamp": now_ms()}
        self._kept.append([kind, data])
        self._send(kind, data, everybody=everybody)

    def _send(self, kind: str, data: dict[str, Any], *, everybody: bool = False) -> None:
        """To the client of the job; `everybody` hears it if there is none."""
        job, life = self._job, self._life
        data = {**data, "prompt_id": job.prompt_id}
        self._sent += 1
        # By what a fault may be tied to this message. The last message has a name of its own, for it ends the job.
        node = data.get("node", data.get("node_id", ""))
        names = {"executing:null"} if kind == "executing" and node is None else {kind, f"{kind}:{node}"}
        at = frozenset({*names, str(self._sent)})
        life.step(at, job.prompt_id)
        self._hurt_socket(at)
        heard = False
        if not self._withheld(at & ENDS) and (job.client_id is not None or everybody):
            heard = life.hub.send(kind, data, job.client_id)
        message = SentMessage(prompt_id=job.prompt_id, type=kind, data=data, heard=heard)
        life.setup.ledger.messages.append(message)

    def _withheld(self, ends: frozenset[str]) -> bool:
        """Without `at` the fault is for the end as a whole: all its messages, and one hit."""
        if not ends or self._silenced:
            return bool(ends)
        fault = self._life.setup.faults.strikes(Fault.COMPLETION_NEVER_SENT, at=ends, prompt_id=self._job.prompt_id)
        self._silenced = fault is not None and fault.at is None
        return fault is not None

    def _hurt_socket(self, at: frozenset[str]) -> None:
        client_id, hub = self._job.client_id, self._life.hub
        for fault in SOCKET_FAULTS:
            socket = hub.find(client_id)
            if client_id is None or socket is None:
                return
            if not self._life.setup.faults.strikes(fault, at=at, prompt_id=self._job.prompt_id):
                continue
            if fault is Fault.CUT_SOCKET:
                hub.cut(socket, client_id)
            elif fault is Fault.DEAF_SOCKET:
                socket.deaf = True
            else:
                hub.unregister(client_id)


def _number(inputs: dict[str, Any], name: str, otherwise: float = 0.0) -> float:
    """What comes by a link is no number here."""
    value = inputs.get(name, otherwise)
    return otherwise if isinstance(value, list) else float(value)
