"""Files in a directory of this machine: `<directory>/<job id>/<name>`."""

import errno
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from herdsman.errors import ServiceUnavailable
from herdsman.results import files
from herdsman.results.options import ResultOptions

_PARTS = ".parts"
"""Where files grow. No job has this id, and it lies on the same disk as the files."""
_AGENT = ".agent"
"""In the directory of a job: for whom it ran. No file of a job has such a name."""
_STALE_S = 86_400.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


class LocalStore(files.FileStore):
    def __init__(self, options: ResultOptions, agent: str | None = None) -> None:
        super().__init__(options, agent)
        self._directory = Path(options.place).expanduser().absolute()

    def keep(self, job_id: str, name: str, content: Iterable[bytes]) -> tuple[str, str, files.Measured]:
        what, parts = files.described(job_id, name), self._directory / _PARTS
        with self._kept(what):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            parts.mkdir(mode=0o700, exist_ok=True)
            # What processes left that were killed while they wrote.
            oldest = time.time() - _STALE_S
            for left in parts.iterdir():
                with suppress(FileNotFoundError):
                    if left.stat().st_mtime < oldest:
                        left.unlink()
        part = parts / secrets.token_hex(16)
        try:
            measured = self._written(part, what, content)
            with self._kept(what):
                path = self._placed(part, job_id, name, measured)
        finally:
            part.unlink(missing_ok=True)
        return path.name, path.as_uri(), measured

    def read_own(self, uri: str) -> Iterator[bytes]:
        path, top = self._inside(uri), self._directory.resolve()
        # Nobody owns what an older version kept, and files that people brought.
        with suppress(FileNotFoundError, NotADirectoryError):
            owner = (top / path.relative_to(top).parts[0] / _AGENT).read_text(encoding="utf-8")
            if self.agent not in (None, owner):
                raise files.missing(uri)
        return _pieces(path, 0, None)

    def part(self, uri: str, first: int, length: int) -> Iterator[bytes]:
        return _pieces(self._inside(uri), first, length)

    def size(self, uri: str) -> int:
        return self._inside(uri).stat().st_size

    def find(self, job_id: str, name: str) -> str | None:
        if not files.may_be_kept(job_id, name):
            return None
        path = self._directory / job_id / name
        return path.as_uri() if path.is_file() and not path.is_symlink() else None

    def drop(self, job_id: str) -> None:
        home = self._directory / files.check_job(job_id)
        with self._kept(f"the directory of job {job_id!r}"), suppress(FileNotFoundError):
            shutil.rmtree(home)

    def _written(self, part: Path, what: str, content: Iterable[bytes]) -> files.Measured:
        """To the disk, and not only to its cache: the job is reported as done right after this."""
        with self._kept(what):
            file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)

        def write(piece: bytes) -> None:
            with self._kept(what):
                _write_all(file.fileno(), piece)

        with file:
            measured = self.measured(what, content, write)
            with self._kept(what):
                os.fsync(file.fileno())
        return measured

    def _placed(self, part: Path, job_id: str, wanted: str, measured: files.Measured) -> Path:
        """Under the first name that is free. The same file once more is the file that is there."""
        home = self._directory / job_id
        for name in files.candidates(wanted):
            path = home / name
            if not os.path.lexists(path):
                there = os.scandir(home) if home.is_dir() else ()
                others = sum(each.stat(follow_symlinks=False).st_size for each in there)
                self.check_job_size(files.described(job_id, name), measured.bytes, others)
                home.mkdir(mode=0o700, exist_ok=True)
                if self.agent:  # its name is there before the first file is
                    with suppress(FileExistsError):
                        marker = os.open(home / _AGENT, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                        try:
                            _write_all(marker, self.agent.encode())
                            os.fsync(marker)
                        finally:
                            os.close(marker)
                if _linked(part, path):
                    return path
            if path.is_file() and not path.is_symlink() and path.stat().st_size == measured.bytes:
                with path.open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() == measured.sha256:
                        return path
        raise AssertionError("the candidates end with an error")

    def _inside(self, uri: str) -> Path:
        """The file that a reference names; links in the way may not lead out of our directory."""
        parts = urlsplit(uri)
        if parts.scheme.lower() != "file" or parts.netloc not in ("", "localhost"):
            raise files.not_ours(uri, str(self._directory))
        named = unquote(parts.path)
        if "\0" in named:
            raise files.missing(uri)
        path = Path(named).resolve()
        if not path.is_relative_to(self._directory.resolve()):
            raise files.not_ours(uri, str(self._directory))
        if not path.is_file():
            raise files.missing(uri)
        return path

    @contextmanager
    def _kept(self, what: str) -> Generator[None]:
        """Only around our own work: an error of whoever brings the content is not ours."""
        try:
            yield
        except OSError as error:
            full = error.errno in _FULL
            remedy = "free space there" if full else "make it writable"
            raise ServiceUnavailable(
                f"{what} could not be kept in {self._directory}: {error.strerror or error};"
                f" {remedy}, or set RESULT_STORE to another place"
            ) from error


def _write_all(handle: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _linked(part: Path, path: Path) -> bool:
    """Never over a file that is there; False if one is by now."""
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        part.rename(path)  # a file system without links; two writers of one name at once collide
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return True


def _pieces(path: Path, first: int, length: int | None) -> Iterator[bytes]:
    left = path.stat().st_size - first if length is None else length
    with path.open("rb") as file:
        file.seek(first)
        while left > 0 and (piece := file.read(min(files.PIECE, left))):
            left -= len(piece)
            yield piece
