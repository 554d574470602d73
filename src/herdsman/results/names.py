"""Names of files that services chose: made harmless, kept apart, and what kind of file they promise."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from herdsman.core.errors import InvalidRequest, TooLarge
from herdsman.core.request import check_name

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
"""Kinds that a browser may be told of; none of them can hold a script that it would run."""
ANY_BYTES = "application/octet-stream"

_ROOM = len(f"-{MOST_OF_ONE_NAME}")
_LONGEST_SUFFIX = 20


def harmless(name: str) -> str:
    """The last part of it, without anything that a file system, a terminal or a header could stumble over."""
    return _short(_clean(name)) or UNNAMED


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
    return (
        bool(name) and name == _clean(name) and len(name) <= LONGEST and len(name.encode()) <= LONGEST_BYTES
    )


def _clean(name: str) -> str:
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in last if letter.isprintable()).lstrip(". ").rstrip()


def _short(name: str) -> str:
    """Its end says what it is, so the middle is what goes; a number still fits in."""
    suffix = PurePosixPath(name).suffix if name else ""
    suffix = suffix if len(suffix) <= _LONGEST_SUFFIX else ""
    stem = name.removesuffix(suffix)[: LONGEST - _ROOM - len(suffix)]
    while len(f"{stem}{suffix}".encode()) > LONGEST_BYTES - _ROOM:
        stem = stem[:-1]
    return f"{stem}{suffix}"
