"""The job at hand: what its socket says, how far it is, and the images that come through it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_list, as_number, as_object, as_text
from herdsman.connectors.comfyui.socket import Message, Picture, Socket, read_frame
from herdsman.connectors.comfyui.workflow import SOCKET_SAVER, Workflow, class_of, of_class
from herdsman.connectors.registry import Around
from herdsman.errors import HerdsmanError
from herdsman.jobs.protocol import Ended, Heard, ServiceJob, StoredFile, Working

_ENDINGS = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}
ENDS = frozenset({"execution_success", "execution_error", "execution_interrupted"})
REPEAT_END_S = 1.0


class Pictures:
    """Of one job. They go to the result store as they come, and do not fill the memory."""

    def __init__(self, job: ServiceJob, saving: frozenset[str], options: ComfyUIOptions, around: Around) -> None:
        """`saving` are the nodes whose images are outputs."""
        self._job_id = job.job_id
        self._results = around.results.for_agent(job.agent)
        self._saving = saving
        self._options = options
        self._around = around
        self._previews = 0
        self._next_preview = 0.0
        self._kept: dict[str, list[StoredFile]] = {}
        self._lost: HerdsmanError | None = None

    def take(self, picture: Picture, node: str) -> None:
        """Never raises: an output that could not be kept is missed by who asks for it."""
        now, ending = self._around.clock.monotonic(), _ENDINGS.get(picture.content_type, "bin")
        if node in self._saving:
            kept = self._kept.setdefault(node, [])
            try:
                name = f"socket-{node}-{len(kept) + 1}.{ending}"
                kept.append(self._results.put(self._job_id, name, [picture.content]))
            except HerdsmanError as error:
                self._lost = error
        elif self._previews < self._options.max_previews and now >= self._next_preview:
            self._next_preview = now + self._options.preview_interval_s
            self._previews += 1
            with suppress(HerdsmanError):  # a preview that cannot be stored is no reason to lose a job
                name = f"preview-{self._previews}.{ending}"
                stored = self._results.put(self._job_id, name, [picture.content])
                self._around.say(f"preview: {stored.uri}")

    def nodes(self) -> frozenset[str]:
        return frozenset(self._kept)

    def outputs(self) -> dict[str, Sequence[StoredFile]]:
        """By node, in the order in which they came. The error of one that could not be stored."""
        if self._lost is not None:
            raise self._lost
        return {node: tuple(files) for node, files in self._kept.items()}


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a job is, by the messages about it so far."""

    workflow: Workflow
    cached: set[str] = field(default_factory=set[str])
    finished: set[str] = field(default_factory=set[str])
    current: str | None = None
    value: float = 0.0
    most: float = 0.0
    done: float | None = None
    """It never goes back, although nodes may turn out to need more than was thought."""

    def hear(self, message: Message) -> None:
        """The message must be one of this very job."""
        data, node = message.data, as_text(message.data.get("node"))
        match message.type:
            case "execution_cached":
                self.cached |= {str(each) for each in as_list(data.get("nodes"))}
            case "executing" if node != self.current:
                # One node at a time: when another is at work, the last one is through.
                self.finished |= set[str]() if self.current is None else {self.current}
                self.current, self.value, self.most = node, 0.0, 0.0
            case "progress":
                self._step(node or self.current, data)
            case "executed":
                self.finished.add(str(data.get("node")))
            case "progress_state":
                # It names every node of this run so far, so that one who came late knows them too.
                states = {each: as_object(said) for each, said in as_object(data.get("nodes")).items()}
                self.finished |= {each for each, said in states.items() if said.get("state") == "finished"}
                self._count()
                for each, said in states.items():
                    # A node without steps says 0 of 1, which is no news about how far it is.
                    if said.get("state") == "running" and said.get("max") != 1:
                        self._step(each, said)
            case _:
                pass
        self._count()

    def node_done(self) -> float | None:
        """Of the node at work, from 0 to 1; None where it does not say."""
        return min(self.value / self.most, 1.0) if self.most > 0 else None

    def working(self) -> Working:
        note, share = None, self.node_done()
        if self.current is not None:
            note = f"node {self.current} {class_of(self.workflow, self.current)}"
            if share is not None:
                note += f" {self.value:g}/{self.most:g} ({share:.0%})"
        return Working(done=self.done, note=note, position=0)

    def _step(self, node: str | None, said: Mapping[str, object]) -> None:
        value, most = as_number(said.get("value")), as_number(said.get("max"))
        if value is not None and most is not None and most > 0:
            self.current, self.value, self.most = node, max(value, 0.0), most
            self._count()

    def _count(self) -> None:
        """Cached nodes are no work; those that a node makes meanwhile belong to it."""
        share, to_do = 1.0, set(self.workflow) - self.cached
        if to_do:
            over = to_do & self.finished
            at_work = self.current is not None and self.current.split(".", 1)[0] in to_do - over
            begun = (self.node_done() or 0.0) if at_work else 0.0
            share = round(min((len(over) + begun) / len(to_do), 1.0), 4)
        self.done = share if self.done is None else max(share, self.done)


def heard(message: Message, progress: Progress) -> Heard:
    """What a message of this job means to who listens; `progress` is the state after it."""
    nowhere = message.type == "executing" and message.data.get("node") is None
    return Ended() if nowhere or message.type in ENDS else progress.working()


class Watch:
    def __init__(
        self, job: ServiceJob, external_id: str, workflow: Workflow, options: ComfyUIOptions, around: Around
    ) -> None:
        self.external_id = external_id
        self.workflow = workflow
        self.ended = False
        """The service has said that it is over."""
        self._clock = around.clock
        self._progress = Progress(workflow=workflow)
        self.pictures = Pictures(job, of_class(workflow, SOCKET_SAVER), options, around)
        self._socket = Socket(options, external_id, around.clock)
        self._from_the_start = False

    def open(self, *, from_the_start: bool) -> None:
        self._from_the_start = from_the_start
        self._socket.open()

    def close(self) -> None:
        self._socket.close()

    def listen(self, silence: timedelta) -> Heard | None:
        """Only what is said about this very job ends the silence: the rest is other people's news."""
        if self.ended:
            # Whoever asks again could not look: the end is said once more, but not without a pause.
            self._clock.sleep(min(silence, timedelta(seconds=REPEAT_END_S)))
            return Ended()
        deadline = self._clock.monotonic() + silence.total_seconds()
        while (left := deadline - self._clock.monotonic()) > 0:
            frame = self._socket.hear(left)
            news = None if frame is None else self._understood(frame)
            if news is not None:
                self.ended = isinstance(news, Ended)
                return news
        return None

    def delivered(self) -> frozenset[str]:
        """Nodes whose images came through the socket, all of them: it was open from the start to their end."""
        if not (self._from_the_start and self._socket.whole):
            return frozenset()
        return self.pictures.nodes() & (self.pictures.nodes() if self.ended else self._progress.finished)

    def known(self, working: Working) -> Working:
        """What was looked up, with what was heard."""
        if working.position != 0:
            return working
        return replace(working, done=self._progress.done, note=self._progress.working().note)

    def _understood(self, frame: str | bytes) -> Heard | None:
        match read_frame(frame):
            case Message() as message if message.prompt_id == self.external_id:
                self._progress.hear(message)
                return heard(message, self._progress)
            case Picture() as picture:
                # One without a name belongs to us while one of our nodes runs, since only one job runs at a
                # time.
                node = picture.node or self._progress.current
                if node is not None and picture.prompt_id in {None, self.external_id}:
                    self.pictures.take(picture, node)
                return None
            case _:
                return None
