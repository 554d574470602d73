"""The job at hand: what its socket says, and what was learnt from that."""

from dataclasses import replace
from datetime import timedelta

from herdsman.connectors.comfyui.messages import Message, Picture, read_frame
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.pictures import Pictures
from herdsman.connectors.comfyui.progress import Progress, heard
from herdsman.connectors.comfyui.socket import Socket
from herdsman.connectors.comfyui.workflow import SOCKET_SAVER, Workflow, of_class
from herdsman.connectors.registry import Around
from herdsman.core.service import Ended, Heard, ServiceJob, Working

REPEAT_END_S = 1.0


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
        self._pictures = Pictures(job, of_class(workflow, SOCKET_SAVER), options, around)
        self._socket = Socket(options, external_id, around.clock)
        self._from_the_start = False

    @property
    def pictures(self) -> Pictures:
        return self._pictures

    def open(self, *, from_the_start: bool) -> None:
        self._from_the_start = from_the_start
        self._socket.open()

    def close(self) -> None:
        self._socket.close()

    def listen(self, silence: timedelta) -> Heard | None:
        """Only what is said about this very job ends the silence: the rest is other people's news (C-14)."""
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
        return self._pictures.nodes() & (self._pictures.nodes() if self.ended else self._progress.finished)

    def known(self, working: Working) -> Working:
        """What was looked up, with what was heard."""
        if working.position != 0:
            return working
        return replace(working, done=self._progress.done, note=self._progress.working().note)

    def _understood(self, frame: str | bytes) -> Heard | None:
        match read_frame(frame):
            case Message() as message if message.prompt_id == self.external_id:
                self._progress = self._progress.hear(message)
                return heard(message, self._progress)
            case Picture() as picture:
                self._take(picture)
                return None
            case _:
                return None

    def _take(self, picture: Picture) -> None:
        """One without a name belongs to us while one of our nodes runs, since only one job runs at a time."""
        node = picture.node or self._progress.current
        if node is not None and picture.prompt_id in {None, self.external_id}:
            self._pictures.take(picture, node)
