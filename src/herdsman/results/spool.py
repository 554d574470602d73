"""A file that is collected on the disk before it goes elsewhere."""

import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO

from herdsman.core.errors import ServiceUnavailable


@contextmanager
def spool(what: str) -> Generator[IO[bytes]]:
    """It has no name, so that nothing is left behind whatever happens to this process."""
    with _room(what):
        file = tempfile.TemporaryFile()  # noqa: SIM115  (closed below; errors of the two differ)
    with file:
        yield file


def writing_to(file: IO[bytes], what: str) -> Callable[[bytes], None]:
    def write(piece: bytes) -> None:
        with _room(what):
            file.write(piece)
            file.flush()

    return write


@contextmanager
def _room(what: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ServiceUnavailable(
            f"{what} could not be collected in {tempfile.gettempdir()}: {error.strerror or error};"
            " free space there, or set TMPDIR to another place"
        ) from error
