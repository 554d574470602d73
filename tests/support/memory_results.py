"""A result store in memory, for tests: what a connector put there is still here to be looked at."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from mimetypes import guess_type
from pathlib import PurePosixPath

from herdsman.errors import NotFound, TooLarge
from herdsman.jobs.protocol import StoredFile


@dataclass(kw_only=True)
class MemoryResults:
    """Keeps `herdsman.ports.ResultStore`'s word. A file is read by the address that `put` gave it."""

    limit: int = 64 * 1024 * 1024
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    owners: dict[str, str] = field(default_factory=dict[str, str])
    agent: str | None = None

    def for_agent(self, agent: str) -> "MemoryResults":
        return replace(self, agent=agent)

    def put(self, job_id: str, name: str, content: Iterable[bytes]) -> StoredFile:
        own = PurePosixPath(name.replace("\\", "/")).name or "file"
        whole = bytearray()
        for part in content:
            whole += part
            if len(whole) > self.limit:
                raise TooLarge(f"the file {own} has more than {self.limit} bytes")
        path = PurePosixPath(own)
        names = (own if number == 1 else f"{path.stem}-{number}{path.suffix}" for number in count(1))
        kept = next(name for name in names if self.files.get(_uri(job_id, name), whole) == whole)
        self.files[_uri(job_id, kept)] = bytes(whole)
        if self.agent:
            self.owners[_uri(job_id, kept)] = self.agent
        return StoredFile(
            name=kept,
            uri=_uri(job_id, kept),
            bytes=len(whole),
            sha256=hashlib.sha256(whole).hexdigest(),
            content_type=guess_type(kept)[0] or "application/octet-stream",
        )

    def read(self, uri: str) -> Iterator[bytes]:
        foreign = self.agent is not None and self.owners.get(uri, self.agent) != self.agent
        if uri not in self.files or foreign:
            raise NotFound(f"there is no file {uri}")
        return iter([self.files[uri]])

    def find(self, job_id: str, name: str) -> str | None:
        return _uri(job_id, name) if _uri(job_id, name) in self.files else None

    def drop(self, job_id: str) -> None:
        for uri in [each for each in self.files if each.startswith(_uri(job_id, ""))]:
            del self.files[uri]


def _uri(job_id: str, name: str) -> str:
    return f"memory://{job_id}/{name}"
