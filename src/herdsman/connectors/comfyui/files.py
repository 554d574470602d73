"""Files on their way to ComfyUI and back, in pieces and within limits."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from herdsman.connectors.comfyui.api import Api
from herdsman.connectors.comfyui.shapes import as_list, as_object, as_text
from herdsman.connectors.comfyui.workflow import InputFile
from herdsman.core.errors import Forbidden, InvalidRequest, NotFound, ServiceRejected
from herdsman.core.service import StoredFile
from herdsman.ports import ResultStore

MB = 1024 * 1024
LONGEST_NAME = 100


def upload(api: Api, results: ResultStore, file: InputFile, limit_mb: int) -> str:
    """The name under which ComfyUI has it now."""
    with tempfile.TemporaryFile() as content:
        try:
            _copy(results.read(file.reference), content, file, limit_mb * MB)
        except (NotFound, Forbidden, InvalidRequest) as error:
            # A file of this machine's own directory may be there on another.
            here_only = isinstance(error, NotFound) and file.reference.startswith("file:")
            said = f"the file for node {file.node}, input {file.name!r}, cannot be used: {error}"
            raise ServiceRejected(said, retry=here_only) from error
        content.seek(0)
        return api.upload(_plain_name(file.reference), content)


def _copy(chunks: Iterator[bytes], content: IO[bytes], file: InputFile, limit: int) -> None:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise InvalidRequest(
                f"{file.reference[:200]!r} is larger than {limit // MB} MB; where ComfyUI takes more, raise the"
                " option upload_limit_mb"
            )
        content.write(chunk)


def _plain_name(reference: str) -> str:
    last = PurePosixPath(unquote(urlsplit(reference).path)).name
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in last)
    return plain.lstrip(".")[-LONGEST_NAME:] or "input"


class Harvest:
    """Brings what a job has made into the result store, and says it as JSON."""

    def __init__(self, api: Api, results: ResultStore, job_id: str) -> None:
        self._api = api
        self._results = results
        self._job_id = job_id
        self._names: set[str] = set()

    def gather(
        self, outputs: Mapping[str, object], from_socket: Mapping[str, Sequence[StoredFile]]
    ) -> dict[str, Any]:
        """The same outputs give the same, byte for byte, whoever asks and however often."""
        files: list[dict[str, object]] = []
        values: dict[str, dict[str, object]] = {}
        for node in sorted({*outputs, *from_socket}, key=_by_number):
            files += [_told(node, "images", stored) for stored in from_socket.get(node, ())]
            for kind, found in as_object(outputs.get(node)).items():
                files += [self._bring(node, kind, each) for each in as_list(found) if _is_file(each)]
                if plain := [each for each in as_list(found) if _is_value(each)]:
                    values.setdefault(node, {})[kind] = plain
        return {"outputs": files, "values": values}

    def _bring(self, node: str, kind: str, entry: object) -> dict[str, object]:
        said = as_object(entry)
        place = {part: as_text(said.get(part)) or "" for part in ("filename", "subfolder", "type")}
        _check_place(node, place)
        name = self._free_name(node, place["filename"])
        with self._api.view(place) as (status, content):
            if status == 404:
                self._gone(node, place)
            if status == 400:
                raise ServiceRejected(
                    f"ComfyUI does not give {place['filename']!r} of node {node} to anybody"
                )
            stored = self._results.put(self._job_id, name, content)
        return _told(node, kind, stored)

    def _gone(self, node: str, place: Mapping[str, str]) -> None:
        """Cached nodes name files that somebody has deleted since: only without the cache they are made anew."""
        self._api.free(unload_models=False)
        raise ServiceRejected(
            f"ComfyUI has no file {place['filename']!r} of node {node} any more; its cache was dropped, so that"
            " the next run makes it anew",
            retry=True,
        )

    def _free_name(self, node: str, name: str) -> str:
        """Two nodes may use one name in two folders."""
        free = name
        while free in self._names:
            free = f"{node}-{free}"
        self._names.add(free)
        return free


def _told(node: str, kind: str, stored: StoredFile) -> dict[str, object]:
    return {
        "node": node,
        "kind": kind,
        "name": stored.name,
        "uri": stored.uri,
        "bytes": stored.bytes,
        "sha256": stored.sha256,
        "content_type": stored.content_type,
    }


def _check_place(node: str, place: Mapping[str, str]) -> None:
    parts = f"{place['subfolder']}/{place['filename']}".replace("\\", "/").split("/")
    if ".." in parts or place["filename"].startswith("/") or not place["filename"]:
        raise ServiceRejected(
            f"node {node} says that its output is {place['filename']!r} in {place['subfolder']!r}, which leads"
            " out of ComfyUI's own folders; nothing was fetched"
        )


def _is_file(entry: object) -> bool:
    return isinstance(as_object(entry).get("filename"), str)


def _is_value(entry: object) -> bool:
    return isinstance(entry, str | int | float) and not isinstance(entry, bool)


def _by_number(node: str) -> tuple[tuple[int, int, str], ...]:
    """9 before 12, and both before names."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in node.split("."))
