"""What other processes may see of ours: nothing of our settings, and nothing that looks like a secret."""

import ctypes
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from herdsman.fleet.model import LOCAL_NAME, process_name
from herdsman.jobs.protocol import VARIABLES
from herdsman.settings.model import ACCEPTED, PREFIX, Settings

_ODD = re.compile(r"[^A-Za-z0-9._:@+-]", re.ASCII)
_OURS = re.compile(r"HERDSMAN", re.IGNORECASE)
_SECRET_NAME = re.compile(
    r"PASSWORD|PASSWD|SECRET|TOKEN|CREDENTIAL|PRIVATE_?KEY|API_?KEY|ACCESS_?KEY|SERVICE_ROLE|DATABASE_URL|DSN$",
    re.IGNORECASE,
)
_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_STAT = Path("/proc/self/stat")
_ARGUMENTS, _ENVIRONMENT = (48, 49), (50, 51)
"""Which fields of the file say where the kernel laid them when this process began."""
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def harmless_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    given = os.environ if env is None else env
    return {
        name: value
        for name, value in given.items()
        if name not in ACCEPTED and not _OURS.search(name) and not _secret(name, value)
    }


def keep_secrets(arguments: Sequence[str] = ()) -> None:
    """No process of the same user reads the secrets of this one from /proc, where it runs what others wrote.

    The kernel refuses others its memory and its environment; what would still be shown, should that be undone, is
    overwritten, and so are these words of the command line, which everybody may read.
    """
    for address, text in _laid_out(_ENVIRONMENT):
        name, _, value = text.partition("=")
        if _secret(name, value):
            _overwrite(address, text, keep=len(os.fsencode(name)) + 1)
    for address, text in _laid_out(_ARGUMENTS):
        if any(word and word in text for word in arguments):
            _overwrite(address, text, keep=0)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def secret_files(database_url: str) -> list[str]:
    """Files that the settings name, and that of the database where it is one."""
    named = [
        value for name, value in os.environ.items() if name.endswith("_FILE") and name.removeprefix(PREFIX) in ACCEPTED
    ]
    _, slashes, path = database_url.partition("sqlite:///")
    return [*named, *(f"{path}{end}" for end in ("", "-wal", "-shm") if slashes and path)]


def show_name() -> None:
    """What /proc still shows of a worker that keeps its secrets: the provider that started it beside itself finds it
    again by this."""
    if (name := os.environ.get(LOCAL_NAME)) is not None:
        ctypes.CDLL(None).prctl(_PR_SET_NAME, process_name(name).encode(), 0, 0, 0)


def _laid_out(fields: tuple[int, int]) -> Iterator[tuple[int, str]]:
    """The texts between two addresses of this process, each with its own."""
    numbers = _STAT.read_text().rpartition(")")[2].split()
    # They are counted from 1, and two of them stand before the parenthesis.
    start, end = (int(numbers[field - 3]) for field in fields)
    at = start
    for piece in ctypes.string_at(start, end - start).split(b"\0"):
        yield at, os.fsdecode(piece)
        at += len(piece) + 1


def _overwrite(address: int, text: str, *, keep: int) -> None:
    size = len(os.fsencode(text))
    ctypes.memset(address + keep, ord("x"), size - keep)


def visible_gpus(env: Mapping[str, str] | None = None) -> tuple[str, ...] | None:
    """The GPUs that CUDA would show this process; None for all."""
    named = (os.environ if env is None else env).get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return None
    return tuple(part.strip() for part in named.split(",") if part.strip())


def wanted_models(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the pool of this worker wants to be loaded, as whoever started the worker wrote it down."""
    given = os.environ if env is None else env
    return {name: given[name] for name in VARIABLES if name in given}


def this_machine() -> str:
    """Its name, in letters that an id may have."""
    return _ODD.sub("-", socket.gethostname()).strip("-._:@+")[:128] or "machine"


def instance_name(settings: Settings) -> str:
    """What this process is called in logs."""
    return settings.logs.orchestrator_instance_id or f"{this_machine()}:{os.getpid()}"


def push_name(settings: Settings) -> str:
    """The same after a restart, so that its metrics at a push gateway are replaced and do not pile up."""
    return settings.logs.orchestrator_instance_id or this_machine()


def _secret(name: str, value: str) -> bool:
    return _SECRET_NAME.search(name) is not None or _PASSWORD_IN_URL.search(value) is not None
