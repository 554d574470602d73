"""How far a workflow is, from what its messages say."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from herdsman.connectors.comfyui.messages import Message
from herdsman.connectors.comfyui.shapes import as_list, as_number, as_object, as_text
from herdsman.connectors.comfyui.workflow import Workflow, class_of
from herdsman.core.service import Ended, Heard, Working

ENDS = frozenset({"execution_success", "execution_error", "execution_interrupted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Every message makes a new one of the last one."""

    workflow: Workflow
    cached: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()
    current: str | None = None
    value: float = 0.0
    most: float = 0.0
    done: float | None = None
    """It never goes back, although nodes may turn out to need more than was thought."""

    def hear(self, message: Message) -> "Progress":
        """The message must be one of this very job."""
        match message.type:
            case "execution_cached":
                cached = {str(node) for node in as_list(message.data.get("nodes"))}
                return _counted(self, cached=self.cached | cached)
            case "executing":
                return _moved(self, as_text(message.data.get("node")))
            case "progress":
                node = as_text(message.data.get("node")) or self.current
                return _stepped(self, node, message.data)
            case "executed":
                return _counted(self, finished=self.finished | {str(message.data.get("node"))})
            case "progress_state":
                return _listed(self, as_object(message.data.get("nodes")))
            case _:
                return _counted(self)

    def node_done(self) -> float | None:
        """Of the node at work, from 0 to 1 (S3-05); None where it does not say."""
        return min(self.value / self.most, 1.0) if self.most > 0 else None

    def working(self) -> Working:
        return Working(done=self.done, note=self._note(), position=0)

    def _note(self) -> str | None:
        if self.current is None:
            return None
        name = f"node {self.current} {class_of(self.workflow, self.current)}"
        share = self.node_done()
        return name if share is None else f"{name} {self.value:g}/{self.most:g} ({share:.0%})"


def heard(message: Message, progress: Progress) -> Heard:
    """What a message of this job means to who listens; `progress` is the state after it."""
    nowhere = message.type == "executing" and message.data.get("node") is None
    return Ended() if nowhere or message.type in ENDS else progress.working()


def _parent(node: str | None) -> str | None:
    return None if node is None else node.split(".", 1)[0]


def _moved(progress: Progress, node: str | None) -> Progress:
    """One node at a time: when another is at work, the last one is through."""
    if node == progress.current:
        return _counted(progress)
    left = set[str]() if progress.current is None else {progress.current}
    return _counted(progress, finished=progress.finished | left, current=node, value=0.0, most=0.0)


def _stepped(progress: Progress, node: str | None, said: Mapping[str, object]) -> Progress:
    value, most = as_number(said.get("value")), as_number(said.get("max"))
    if value is None or most is None or most <= 0:
        return _counted(progress)
    return _counted(progress, current=node, value=max(value, 0.0), most=most)


def _listed(progress: Progress, nodes: Mapping[str, object]) -> Progress:
    """It names every node of this run so far, so that one who came late knows them too."""
    states = {node: as_object(said) for node, said in nodes.items()}
    over = {node for node, said in states.items() if said.get("state") == "finished"}
    now = _counted(progress, finished=progress.finished | over)
    for node, said in states.items():
        # A node without steps says 0 of 1, which is no news about how far it is.
        if said.get("state") == "running" and said.get("max") != 1:
            now = _stepped(now, node, said)
    return now


def _counted(progress: Progress, **changes: object) -> Progress:
    changed = replace(progress, **changes)  # pyright: ignore[reportArgumentType]
    share = _share(changed)
    return replace(changed, done=share if progress.done is None else max(share, progress.done))


def _share(progress: Progress) -> float:
    """Cached nodes are no work; those that a node makes meanwhile belong to it."""
    to_do = set(progress.workflow) - progress.cached
    if not to_do:
        return 1.0
    over = to_do & progress.finished
    begun = (progress.node_done() or 0.0) if _parent(progress.current) in to_do - over else 0.0
    return round(min((len(over) + begun) / len(to_do), 1.0), 4)
