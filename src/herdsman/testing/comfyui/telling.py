"""What is said about one job on the socket, and the faults that strike while it is said."""

from collections.abc import Sequence
from typing import Any

from herdsman.testing.comfyui.faults import Fault
from herdsman.testing.comfyui.jobs import Job
from herdsman.testing.comfyui.ledger import Said
from herdsman.testing.comfyui.life import Life
from herdsman.testing.comfyui.setup import now_ms
from herdsman.testing.comfyui.work import NodeFailed

ENDS = frozenset({"execution_success", "execution_error", "execution_interrupted", "executing:null"})
SOCKET_FAULTS = (Fault.DUPLICATE_CLIENT, Fault.DEAF_SOCKET, Fault.CUT_SOCKET)


class Telling:
    """Most is for the client of the job alone. Without one, some goes to everybody, and the rest to nobody."""

    def __init__(self, life: Life, job: Job) -> None:
        self._life = life
        self._job = job
        self._nodes: dict[str, dict[str, Any]] = {}
        self.kept: list[list[Any]] = []
        """The messages that the history shows."""

    def start(self) -> None:
        self._keep("execution_start", {})

    def cached(self, nodes: Sequence[str]) -> None:
        self._keep("execution_cached", {"nodes": list(nodes)})

    def success(self) -> None:
        self._keep("execution_success", {})

    def error(
        self, node_id: str, done: Sequence[str], error: NodeFailed, inputs: dict[str, Any] | None = None
    ) -> None:
        self._keep(
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
        self._keep("execution_interrupted", self._at(node_id, done), everybody=True)

    def node_starts(self, node_id: str) -> None:
        self._node(node_id, 0.0, 1.0, "running")
        self.progress_state()
        self._life.hub.node_id = node_id
        self._say("executing", {"node": node_id, "display_node": node_id})

    def node_ends(self, node_id: str) -> None:
        most = self._nodes[node_id]["max"]
        self._node(node_id, most, most, "finished")
        self.progress_state()

    def inner_node(self, node_id: str, number: int) -> None:
        """As a node does that stands for several, and has a word of its own that nobody else knows."""
        inner = f"{node_id}.0.0.{number}"
        self._node(inner, 1.0, 1.0, "finished")
        self._nodes[inner].update(display_node_id=node_id, parent_node_id=node_id)
        self._say("executing", {"node": inner, "display_node": node_id})
        self.progress_state()
        self._say("herdsman_news", {"number": number})

    def progress(self, node_id: str, value: int, most: int, picture: bytes | None) -> None:
        self._node(node_id, float(value), float(most), "running")
        self.progress_state()
        self._say("progress", {"value": value, "max": most, "node": node_id}, everybody=True)
        if picture is not None:
            names = ("node_id", "display_node_id", "real_node_id")
            metadata = {**dict.fromkeys(names, node_id), "parent_node_id": None}
            metadata["prompt_id"] = self._job.prompt_id
            self._life.hub.show(picture, metadata, self._job.client_id)

    def progress_state(self) -> None:
        self._say("progress_state", {"nodes": dict(self._nodes)}, everybody=True)

    def executed(self, node_id: str, ui: dict[str, Any]) -> None:
        self._say("executed", {"node": node_id, "display_node": node_id, "output": ui})

    def over(self) -> None:
        self._say("executing", {"node": None})

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

    def _keep(self, kind: str, data: dict[str, Any], *, everybody: bool = False) -> None:
        data = {"prompt_id": self._job.prompt_id, **data, "timestamp": now_ms()}
        self.kept.append([kind, data])
        self._say(kind, data, everybody=everybody)

    def _say(self, kind: str, data: dict[str, Any], *, everybody: bool = False) -> None:
        """To the client of the job; `everybody` hears it if there is none."""
        job = self._job
        data = {**data, "prompt_id": job.prompt_id}
        job.told += 1
        at = _names(kind, data, job.told)
        self._life.step(at, job.prompt_id)
        self._hurt_socket(at)
        heard = False
        if not self._withheld(at) and (job.client_id is not None or everybody):
            heard = self._life.hub.tell(kind, data, job.client_id)
        said = Said(prompt_id=job.prompt_id, type=kind, data=data, heard=heard)
        self._life.setup.ledger.note_message(said)

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
                self._life.hub.leave(client_id)


def _names(kind: str, data: dict[str, Any], number: int) -> frozenset[str]:
    """By what a fault may be tied to this message. The last word has a name of its own, for it ends the job."""
    node = data.get("node", data.get("node_id", ""))
    if kind == "executing" and node is None:
        return frozenset({"executing:null", str(number)})
    return frozenset({kind, f"{kind}:{node}", str(number)})
