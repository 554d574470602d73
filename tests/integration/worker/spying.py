"""A handler that reads every file under /proc that it may, and tells which of them hold a secret."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from herdsman import JobContext, handler

MOST_BYTES = 1 << 20
MOST_OF_A_REGION = 64 << 20
# Put together here, so that the memory of this process does not hold what it looks for.
SECRET = re.compile((b"CAN" + b"ARY") + rb"[a-z0-9]{16}|" + (b"hm" + b"_") + rb"[a-z]+_[0-9a-f]{16}_[\w-]{20,}")
NEVER_END = frozenset({"kmsg", "kcore", "kpagecount", "kpageflags", "kpagecgroup", "pagemap"})


@handler("spy")
def spy(job: JobContext) -> object:
    del job
    found = [[path, secret.decode()] for path, data in _everything() for secret in SECRET.findall(data)]
    return {"found": found, "family": _family(), "read": _read_of(os.getpid()) > 0}


def _everything() -> Iterator[tuple[str, bytes]]:
    # Itself first: afterwards its memory holds what it has read elsewhere, also of strangers that keep no secrets.
    yield from _memory(Path(f"/proc/{os.getpid()}"))
    for place, folders, names in os.walk("/proc"):
        folders[:] = [each for each in folders if each not in ("task", "map_files", "cwd", "root", "thread-self")]
        for name in names:
            path = f"{place}/{name}"
            if name == "mem" and place != "/proc":
                yield from () if place in ("/proc/self", f"/proc/{os.getpid()}") else _memory(Path(place))
            elif name not in NEVER_END:
                yield path, _start_of(path)
    with suppress(OSError), open("/proc/kcore", "rb") as file:  # noqa: PTH123
        yield "/proc/kcore", file.read(MOST_BYTES)


def _start_of(path: str) -> bytes:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(number, MOST_BYTES)
    except OSError:
        return b""
    finally:
        os.close(number)


def _memory(process: Path) -> Iterator[tuple[str, bytes]]:
    with suppress(OSError), (process / "mem").open("rb", buffering=0) as memory:
        for line in (process / "maps").read_text().splitlines():
            span, rights, *_ = line.split()
            start, end = (int(each, 16) for each in span.split("-"))
            if not rights.startswith("rw"):
                continue
            with suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                yield str(process / "mem"), memory.read(min(end - start, MOST_OF_A_REGION))


def _read_of(pid: int) -> int:
    """That it can read at all: its own memory."""
    return sum(len(data) for _, data in _memory(Path(f"/proc/{pid}")))


def _family() -> list[int]:
    """This process, its supervisor, and so on up to the first."""
    pids = [os.getpid()]
    while pids[-1] > 1:
        stat = Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2].split()
        pids.append(int(stat[1]))
    return pids
