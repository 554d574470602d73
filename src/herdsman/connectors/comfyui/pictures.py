"""Images that come through the socket: previews, and outputs that come by no other way."""

from collections.abc import Sequence
from contextlib import suppress

from herdsman.connectors.comfyui.messages import Picture
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.registry import Around
from herdsman.core.errors import HerdsmanError
from herdsman.core.service import ServiceJob, StoredFile

_ENDINGS = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}


class Pictures:
    """Of one job. They go to the result store as they come, and do not fill the memory."""

    def __init__(
        self, job: ServiceJob, saving: frozenset[str], options: ComfyUIOptions, around: Around
    ) -> None:
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
        if node in self._saving:
            self._keep(picture, node)
        elif self._previews < self._options.max_previews and self._is_time():
            self._show(picture)

    def nodes(self) -> frozenset[str]:
        return frozenset(self._kept)

    def outputs(self) -> dict[str, Sequence[StoredFile]]:
        """By node, in the order in which they came. The error of one that could not be stored."""
        if self._lost is not None:
            raise self._lost
        return {node: tuple(files) for node, files in self._kept.items()}

    def _keep(self, picture: Picture, node: str) -> None:
        kept = self._kept.setdefault(node, [])
        name = f"socket-{node}-{len(kept) + 1}.{_ending(picture)}"
        try:
            kept.append(self._results.put(self._job_id, name, [picture.content]))
        except HerdsmanError as error:
            self._lost = error

    def _is_time(self) -> bool:
        return self._around.clock.monotonic() >= self._next_preview

    def _show(self, picture: Picture) -> None:
        """A preview that cannot be stored is no reason to lose a job."""
        self._next_preview = self._around.clock.monotonic() + self._options.preview_interval_s
        self._previews += 1
        with suppress(HerdsmanError):
            name = f"preview-{self._previews}.{_ending(picture)}"
            stored = self._results.put(self._job_id, name, [picture.content])
            self._around.say(f"preview: {stored.uri}")


def _ending(picture: Picture) -> str:
    return _ENDINGS.get(picture.content_type, "bin")
