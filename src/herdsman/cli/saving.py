"""Puts the files of a job into a directory of the person who asked for it, and never over another file."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard, cast

from herdsman.core.errors import InvalidRequest, Unreachable

UNNAMED = "output"
LONGEST_NAME = 200
"""Bytes; file systems take 255, and ours may get a prefix."""


@dataclass(frozen=True, slots=True)
class Output:
    """One file of a result, as its job tells of it."""

    name: str
    uri: str
    sha256: str | None = None


Fetch = Callable[[Output, Path], None]
"""Brings one file, to exactly that path."""


def outputs_of(result: object) -> list[Output]:
    """In the order of the result; what does not look like a file is passed over."""
    told = cast("dict[str, Any]", result).get("outputs") if isinstance(result, dict) else None
    each = cast("list[object]", told) if isinstance(told, list) else []
    return [_output(one) for one in each if _is_file(one)]


def check_directory(directory: Path) -> None:
    """Before anything is rendered: what cannot be kept need not be made."""
    nearest = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise InvalidRequest(f"--save-to is {str(directory)!r}, but {nearest} is not a directory")


def save(outputs: Sequence[Output], job_id: str, directory: Path, fetch: Fetch) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".herdsman-", dir=directory) as place:
            return [_saved(each, job_id, directory, Path(place), fetch) for each in outputs]
    except OSError as error:
        raise InvalidRequest(f"--save-to is {str(directory)!r}: {error.strerror}") from error


def _saved(output: Output, job_id: str, directory: Path, place: Path, fetch: Fetch) -> Path:
    name = harmless(output.name)
    brought = place / "file"
    fetch(output, brought)
    digest = _digest(brought)
    if output.sha256 not in (None, digest):
        raise Unreachable(f"{name} arrived damaged: its SHA-256 is {digest}, and {output.sha256} was told")
    chosen = next(path for path in _candidates(directory, name, job_id) if _may_be(path, digest))
    return brought.replace(chosen)


def harmless(name: str) -> str:
    """The last part of a name that a service chose, fit for a file and for a terminal."""
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(letter for letter in last if letter.isprintable())
    short = kept.encode()[-LONGEST_NAME:].decode(errors="ignore")
    return short.lstrip(".") or UNNAMED


def _candidates(directory: Path, name: str, job_id: str) -> Iterator[Path]:
    yield directory / name
    # The end of an id differs more than its beginning, which is the time.
    short = harmless(job_id)[-8:]
    yield directory / f"{short}-{name}"
    yield from (directory / f"{short}-{number}-{name}" for number in count(2))


def _may_be(path: Path, digest: str) -> bool:
    """Whether nothing is there, or the same bytes: a job may be saved twice."""
    if not path.exists() and not path.is_symlink():
        return True
    return path.is_file() and not path.is_symlink() and _digest(path) == digest


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_file(told: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(told, dict):
        return False
    one = cast("dict[str, object]", told)
    return isinstance(one.get("name"), str) and isinstance(one.get("uri"), str)


def _output(told: dict[str, Any]) -> Output:
    sha256 = told.get("sha256")
    return Output(told["name"], told["uri"], sha256 if isinstance(sha256, str) else None)
