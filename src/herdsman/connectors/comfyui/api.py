"""ComfyUI's API, one method per call. Everything may be asked again, except for a prompt."""

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import IO
from urllib.parse import quote

from herdsman.connectors.comfyui.shapes import as_object, as_text
from herdsman.connectors.comfyui.wire import Answer, NotThere, Wire, pieces
from herdsman.core.errors import ServiceRejected, ServiceUnavailable, SubmissionUnknown

Version = tuple[int, int, int]

OLDEST: Version = (0, 3, 45)
"""The first that takes ids of our choice."""
INTERRUPTS_BY_ID: Version = (0, 3, 57)
"""Those before stop whatever runs."""
HAS_JOBS: Version = (0, 6, 0)

_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


class Api:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._version: Version | None = None

    def close(self) -> None:
        self._wire.close()

    def version(self) -> Version:
        """Of the server that was there when it was last asked; (0, 0, 0) where it does not say."""
        if self._version is None:
            self._version = read_version(self.system_stats()) or (0, 0, 0)
        return self._version

    def forget_version(self) -> None:
        """It was away, or is not what it was: another one may come back."""
        self._version = None

    def system_stats(self) -> Mapping[str, object]:
        return self._get("/system_stats")

    def queue_remaining(self) -> int | None:
        left = as_object(self._get("/prompt").get("exec_info")).get("queue_remaining")
        return left if isinstance(left, int) else None

    def post_prompt(self, body: Mapping[str, object]) -> Answer:
        """With 200, 400 or 413. `SubmissionUnknown` where it may have been taken."""
        return self._wire.ask("POST", "/prompt", body=body, also=(400, 413), unclear=SubmissionUnknown)

    def queue(self) -> Mapping[str, object]:
        return self._get("/queue")

    def history(self, prompt_id: str) -> Mapping[str, object]:
        return self._get(f"/history/{quote(prompt_id, safe='')}")

    def job(self, prompt_id: str) -> Mapping[str, object] | None:
        """None when there is no such job; `NotThere` when there is no such question."""
        answer = self._wire.ask("GET", f"/api/jobs/{quote(prompt_id, safe='')}", also=(404,))
        if answer.status != 404:
            return answer.object()
        if b"Job not found" in answer.body:
            return None
        raise NotThere(answer.sentence())

    def delete_waiting(self, prompt_id: str) -> None:
        self._wire.ask("POST", "/queue", body={"delete": [prompt_id]})

    def interrupt(self, prompt_id: str) -> None:
        # Without an id it would stop whatever runs.
        assert prompt_id
        self._wire.ask("POST", "/interrupt", body={"prompt_id": prompt_id})

    def free(self, *, unload_models: bool) -> None:
        self._wire.ask("POST", "/free", body={"unload_models": unload_models, "free_memory": True})

    def upload(self, name: str, content: IO[bytes]) -> str:
        """The name by which a workflow finds it: not always the one that was asked for."""
        answer = self._wire.send_file("/upload/image", name, content, also=(400, 413))
        if answer.status in {400, 413}:
            raise ServiceRejected(f"ComfyUI did not take the file {name!r}: {answer.sentence()}")
        told = answer.object()
        given, folder = as_text(told.get("name")), as_text(told.get("subfolder"))
        if not given:
            raise ServiceUnavailable(f"{answer.sentence()}, without the name of the file")
        return f"{folder}/{given}" if folder else given

    @contextmanager
    def view(self, params: Mapping[str, str]) -> Generator[tuple[int, Iterator[bytes]]]:
        """The status and the content, which ends with an error where it is shorter than was said."""
        with self._wire.stream("/view", params, also=(400, 404)) as response:
            yield response.status_code, pieces(response)

    def _get(self, path: str) -> Mapping[str, object]:
        return self._wire.ask("GET", path).object()


def read_version(stats: Mapping[str, object]) -> Version | None:
    text = as_text(as_object(stats.get("system")).get("comfyui_version")) or ""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
