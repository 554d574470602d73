"""How much a job may keep, and how much a file turned out to be."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from herdsman.core.errors import TooLarge

MB = 1024 * 1024
PIECE = 256 * 1024
"""Files are read in pieces of this many bytes."""


@dataclass(frozen=True, slots=True)
class Measured:
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    file_mb: int
    job_mb: int

    def check_file(self, what: str, size: int) -> None:
        """While it arrives: how large it would become nobody knows then."""
        if size > self.file_mb * MB:
            raise TooLarge(
                f"{what} has at least {size:,} bytes, and the limit is {self.file_mb} MB:"
                " make it smaller, or raise RESULT_MAX_FILE_MB"
            )

    def check_job(self, what: str, size: int, kept: int) -> None:
        """`kept` is what all other files of the job have."""
        if kept + size > self.job_mb * MB:
            raise TooLarge(
                f"{what} has {size:,} bytes and the other files of the job {kept:,}, and the limit is"
                f" {self.job_mb} MB together: make fewer or smaller ones, or raise RESULT_MAX_JOB_MB"
            )

    def measured(self, what: str, content: Iterable[bytes], write: Callable[[bytes], object]) -> Measured:
        """Writes it piece by piece, and stops at the limit."""
        digest, size = hashlib.sha256(), 0
        for piece in content:
            size += len(piece)
            self.check_file(what, size)
            digest.update(piece)
            write(piece)
        return Measured(size, digest.hexdigest())


def described(job_id: str, name: str) -> str:
    return f"the file {name!r} of job {job_id!r}"
