"""Files of jobs, fetched from the server to a disk: whole and as they were made, or not at all."""

import hashlib
import secrets
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

from herdsman.client import calls
from herdsman.client.transport import Transport
from herdsman.errors import InvalidRequest, ServiceUnavailable, StoreUnavailable, TooMany, Unreachable
from herdsman.jobs.wire import sha256_of
from herdsman.wire import VERSION_HEADER

SILENCE = timedelta(seconds=60)
"""No byte for this long, and the connection counts as broken."""


class _Damaged(Unreachable):
    """It would be the same the next time: what breaks on the way is noticed before."""


async def download(transport: Transport, job_id: str, name: str, to: Path) -> Path:
    if not name or name.startswith(".") or "/" in name or "\\" in name:
        raise InvalidRequest(f"name is {name!r}: it must be the name of a file, without a path before it")
    target = to / name if to.is_dir() else to  # noqa: ASYNC240  (one stat)
    found = await transport.send(calls.result(job_id))
    expected = None if found is None else sha256_of(found.result, name)
    began, tries = transport.now(), 0
    while True:
        tries += 1
        try:
            return await _fetch(transport, job_id, name, target, expected)
        except _Damaged:
            raise
        except (Unreachable, StoreUnavailable, ServiceUnavailable, TooMany) as error:
            await transport.rest(error, tries=tries, began=began)


async def _fetch(transport: Transport, job_id: str, name: str, target: Path, expected: str | None) -> Path:
    """Into a file beside the target, which it replaces when it is whole; nothing is left of it otherwise."""
    part = target.parent / f".{secrets.token_hex(8)}.part"
    digest = hashlib.sha256()
    arriving = transport.stream(
        calls.file(job_id, name), silence=SILENCE, ours=lambda headers: VERSION_HEADER in headers
    )
    try:
        with part.open("xb") as file:
            async with aclosing(arriving) as chunks:
                async for chunk in chunks:
                    digest.update(chunk)
                    file.write(chunk)
        if expected not in (None, digest.hexdigest()):
            raise _Damaged(
                f"the file {name!r} of job {job_id} arrived with the SHA-256 {digest.hexdigest()}, but its result tells"
                f" {expected}: it was changed since, or damaged"
            )
        return part.replace(target)
    finally:
        part.unlink(missing_ok=True)
