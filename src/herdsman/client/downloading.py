"""Files of jobs, fetched from the server to a disk: whole and as they were made, or not at all."""

import hashlib
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO

from herdsman.client import calls
from herdsman.client.transport import Transport
from herdsman.core.errors import (
    HerdsmanError,
    InvalidRequest,
    ServiceUnavailable,
    StoreUnavailable,
    TooMany,
    Unreachable,
)
from herdsman.wire.files import sha256_of

SILENCE = timedelta(seconds=60)
"""Nothing for this long, and the connection counts as broken."""
_LATER = (Unreachable, StoreUnavailable, ServiceUnavailable, TooMany)


class _Damaged(Unreachable):
    """It would be the same the next time: what breaks on the way is noticed before."""


class Downloading:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def download(self, job_id: str, name: str, to: Path) -> Path:
        target = _target(name, to)
        found = await self._transport.send(calls.result(job_id))
        told = None if found is None else sha256_of(found.result, name)
        began, tries = self._transport.now(), 0
        while True:
            tries += 1
            try:
                return await self._fetched(job_id, name, target, told)
            except _Damaged:
                raise
            except _LATER as error:
                await self._rest_or_raise(error, tries, began)

    async def _fetched(self, job_id: str, name: str, target: Path, told: str | None) -> Path:
        with _growing(target) as (path, file):
            found = await self._copied(job_id, name, file)
            if told not in (None, found):
                raise _Damaged(
                    f"the file {name!r} of job {job_id} arrived with the SHA-256 {found}, but its result tells {told}:"
                    " it was changed since, or damaged"
                )
            return path.replace(target)

    async def _copied(self, job_id: str, name: str, file: IO[bytes]) -> str:
        digest = hashlib.sha256()
        arriving = self._transport.file(calls.file(job_id, name), silence=SILENCE)
        try:
            async for piece in arriving:
                digest.update(piece)
                file.write(piece)
        finally:
            await arriving.aclose()
        file.flush()
        return digest.hexdigest()

    async def _rest_or_raise(self, error: HerdsmanError, tries: int, began: float) -> None:
        asked = error.retry_after if isinstance(error, TooMany) else None
        pause = self._transport.pause_after(tries, asked=asked, began=began)
        if pause is None:
            raise error
        await self._transport.pause(pause)


def _target(name: str, to: Path) -> Path:
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        raise InvalidRequest(f"name is {name!r}: it must be the name of a file, without a path before it")
    return to / name if to.is_dir() else to


@contextmanager
def _growing(target: Path) -> Generator[tuple[Path, IO[bytes]]]:
    """A file beside the one that it becomes; nothing of it is left when something goes wrong."""
    path = target.parent / f".{secrets.token_hex(8)}.part"
    try:
        with path.open("xb") as file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)
