"""Rules for the files of jobs: their names, made harmless; how much may be kept; and the references that jobs name."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

import httpx

from herdsman.errors import Forbidden, InvalidRequest, NotFound, ServiceUnavailable, TooLarge
from herdsman.ids import check_name
from herdsman.jobs.protocol import StoredFile
from herdsman.results.options import ResultOptions
from herdsman.web import guarded_client

LONGEST = 150
LONGEST_BYTES = 240
"""A file system takes 255."""
MOST_OF_ONE_NAME = 10_000
UNNAMED = "file"

CONTENT_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".mp4": "video/mp4",
    ".webm": "video/webm",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
"""Content types that a browser may get; none of them can hold a script that it would run."""
ANY_BYTES = "application/octet-stream"

_ROOM = len(f"-{MOST_OF_ONE_NAME}")
_LONGEST_SUFFIX = 20
MB = 1024 * 1024
PIECE = 256 * 1024
"""Files are read in pieces of this many bytes."""
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
KINDS = "file://, s3://, http:// or https://"
_LONGEST_SHOWN = 300
_PATIENCE_S = 30.0


def harmless(name: str) -> str:
    """The last part of it, without anything that a file system, a terminal or a header could stumble over."""
    clean = _clean(name)
    # Its end says what it is, so the middle is what goes; a number still fits in.
    suffix = PurePosixPath(clean).suffix if clean else ""
    suffix = suffix if len(suffix) <= _LONGEST_SUFFIX else ""
    stem = clean.removesuffix(suffix)[: LONGEST - _ROOM - len(suffix)]
    while len(f"{stem}{suffix}".encode()) > LONGEST_BYTES - _ROOM:
        stem = stem[:-1]
    return f"{stem}{suffix}" or UNNAMED


def candidates(name: str) -> Iterator[str]:
    """The name, and those that it gets where others have it already: `a.png`, `a-2.png`, `a-3.png`."""
    yield name
    path = PurePosixPath(name)
    yield from (f"{path.stem}-{number}{path.suffix}" for number in range(2, MOST_OF_ONE_NAME + 1))
    raise TooLarge(f"there are {MOST_OF_ONE_NAME:,} different files {name!r} in one job, which is the limit")


def content_type(name: str) -> str:
    return CONTENT_TYPES.get(PurePosixPath(name).suffix.lower(), ANY_BYTES)


def check_job(job_id: str) -> str:
    """The id as a part of a path: what passes begins with a letter or digit, and has no slash in it."""
    check_name("job_id", job_id, 128)
    return job_id


def may_be_kept(job_id: str, name: str) -> bool:
    """Whether a file of that name can be there at all; whoever asks for it is not trusted either."""
    try:
        check_job(job_id)
    except InvalidRequest:
        return False
    return bool(name) and name == _clean(name) and len(name) <= LONGEST and len(name.encode()) <= LONGEST_BYTES


def _clean(name: str) -> str:
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in last if letter.isprintable()).lstrip(". ").rstrip()


@dataclass(frozen=True, slots=True)
class Measured:
    bytes: int
    sha256: str


class FileStore(ABC):
    """What all stores of files do alike: names, limits, and the files of others on the web."""

    def __init__(self, options: ResultOptions, agent: str | None = None) -> None:
        self.options = options
        self.agent = agent

    def for_agent(self, agent: str) -> Self:
        return type(self)(self.options, agent)

    def put(self, job_id: str, name: str, content: Iterable[bytes]) -> StoredFile:
        check_job(job_id)
        wanted = harmless(name)
        kept, uri, measured = self.keep(job_id, wanted, content)
        return StoredFile(
            name=kept, uri=uri, bytes=measured.bytes, sha256=measured.sha256, content_type=content_type(kept)
        )

    def read(self, uri: str) -> Iterator[bytes]:
        return self._read_web(uri) if kind_of(uri) == "http" else self.read_own(uri)

    @abstractmethod
    def keep(self, job_id: str, name: str, content: Iterable[bytes]) -> tuple[str, str, Measured]:
        """Under which name and reference it was kept: the first name that is free, or that the same file has."""

    @abstractmethod
    def read_own(self, uri: str) -> Iterator[bytes]: ...

    def check_size(self, what: str, size: int) -> None:
        """While it arrives: how large it would become nobody knows then."""
        limit = self.options.max_file_mb
        if size > limit * MB:
            raise TooLarge(
                f"{what} has at least {size:,} bytes, and the limit is {limit} MB:"
                " make it smaller, or raise RESULT_MAX_FILE_MB"
            )

    def check_job_size(self, what: str, size: int, kept: int) -> None:
        """`kept` is what all other files of the job have."""
        limit = self.options.max_job_mb
        if kept + size > limit * MB:
            raise TooLarge(
                f"{what} has {size:,} bytes and the other files of the job {kept:,}, and the limit is"
                f" {limit} MB together: make fewer or smaller ones, or raise RESULT_MAX_JOB_MB"
            )

    def measured(self, what: str, content: Iterable[bytes], write: Callable[[bytes], object]) -> Measured:
        """Writes it piece by piece, and stops at the limit."""
        digest, size = hashlib.sha256(), 0
        for piece in content:
            size += len(piece)
            self.check_size(what, size)
            digest.update(piece)
            write(piece)
        return Measured(size, digest.hexdigest())

    def _read_web(self, uri: str) -> Iterator[bytes]:
        """Files of others. The first piece is the moment at which one is asked for."""
        what = f"the file at {_place(uri)}"
        try:
            with (
                guarded_client(tuple(self.options.allow_hosts), timeout=_PATIENCE_S) as client,
                client.stream("GET", uri, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                if answer.status_code in (404, 410):
                    raise NotFound(f"{what} does not exist: its server answered with {answer.status_code}")
                if answer.status_code in (401, 403):
                    raise Forbidden(
                        f"{what} must not be read: its server answered with {answer.status_code}; use a URL that is open"
                    )
                if answer.status_code != 200:
                    raise ServiceUnavailable(f"{what} could not be read: its server answered with {answer.status_code}")
                length = answer.headers.get("content-length", "")
                self.check_size(what, int(length) if length.isdecimal() else 0)
                size = 0
                for piece in answer.iter_bytes(PIECE):
                    size += len(piece)
                    self.check_size(what, size)
                    yield piece
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise ServiceUnavailable(
                f"{what} could not be read: {type(error).__name__}; check that it can be reached from the worker"
            ) from error
        except httpx.InvalidURL as error:
            raise InvalidRequest(f"{_shown(_place(uri))} is no URL: {error}") from error


def described(job_id: str, name: str) -> str:
    return f"the file {name!r} of job {job_id!r}"


def kind_of(uri: str) -> str:
    """`file`, `s3` or `http`; files inside the job itself are refused, for its row would have to hold them."""
    found = SCHEME.match(uri)
    scheme = found[1].lower() if found else ""
    if scheme == "data":
        raise InvalidRequest(
            "a file was given as a data: URI, and no job holds files: keep it in the result store or on a web"
            f" server, and give a reference to it ({KINDS})"
        )
    if scheme in ("file", "s3"):
        return scheme
    if scheme in ("http", "https"):
        return "http"
    raise InvalidRequest(f"{_shown(uri)} is no reference to a file: it must begin with {KINDS}; base64 is not taken")


def not_ours(uri: str, place: str) -> Forbidden:
    return Forbidden(f"{_shown(uri)} must not be read: only files in the result store {place} may be")


def missing(uri: str) -> NotFound:
    return NotFound(f"there is no file {_shown(uri)}")


def _place(uri: str) -> str:
    """Without what may be a key: links to private files carry it behind the question mark."""
    return re.sub(r"//[^/@]*@", "//", uri.partition("?")[0].partition("#")[0])


def _shown(uri: str) -> str:
    return repr(uri if len(uri) <= _LONGEST_SHOWN else f"{uri[:_LONGEST_SHOWN]}...")
