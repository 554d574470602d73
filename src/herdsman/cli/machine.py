"""This machine: the defaults that `herdsman up` chooses for it, its ports, and its disk space."""

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType

from herdsman.errors import InvalidSettings
from herdsman.providers.local.provider import count_gpus
from herdsman.server.runtime_files import runtime_files
from herdsman.settings import Origin, Settings

SIMULATED_GPUS = 2
SILENT_SEC = 30.0
"""As long as a claim lasts: a worker without a heartbeat for that long has lost its job anyway."""

_ABOUT_SILENCE = ("HEARTBEAT_TIMEOUT_SEC", "GPU_IDLE_TIMEOUT_SEC", "HEARTBEAT_INTERVAL_SEC")


def for_this_machine(settings: Settings, gpus: Callable[[], int] = count_gpus) -> Settings:
    """A machine without a GPU simulates two, and a worker that died is replaced soon."""
    if settings.providers.provider != "local":
        return settings
    pools = {name: _impatient(pool) for name, pool in settings.by_pool.items()}
    changed = _impatient(settings).model_copy(update={"by_pool": MappingProxyType(pools)})
    if settings.origin("FAKE_GPUS") is not Origin.DEFAULT or gpus() > 0:
        return changed
    local = settings.local.model_copy(update={"fake_gpus": SIMULATED_GPUS})
    return changed.model_copy(update={"local": local})


def on_a_free_port(settings: Settings) -> Settings:
    """Any free port, where none was chosen and the default one is taken; `up` prints it."""
    api = settings.api
    if settings.origin("API_PORT") is not Origin.DEFAULT or port_fault(api.api_host, api.api_port) is None:
        return settings
    return settings.model_copy(update={"api": api.model_copy(update={"api_port": 0})})


def port_fault(host: str, port: int) -> str | None:
    """Why nothing can listen there now; found out by trying."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror
    return None


def _impatient(settings: Settings) -> Settings:
    """A local process without a heartbeat is not one that a network hides."""
    if any(settings.origin(name) is not Origin.DEFAULT for name in _ABOUT_SILENCE):
        return settings
    health = settings.health.model_copy(update={"heartbeat_timeout_sec": SILENT_SEC})
    return settings.model_copy(update={"health": health})


MB = 1024 * 1024
LEAST = 16 * MB
"""With less than this nothing is started: the disk would fill up while jobs run."""
LITTLE = 1024 * MB
_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    setting: str
    directory: Path


def places(settings: Settings) -> list[Place]:
    found = [Place(setting="LOCAL_STATE_DIR", directory=runtime_files(settings).directory)]
    file = sqlite_file(settings)
    if file is not None and file.parent != found[0].directory:
        found.insert(0, Place(setting="DATABASE_URL", directory=file.parent))
    return found


def sqlite_file(settings: Settings) -> Path | None:
    url = settings.database.database_url.get_secret_value()
    path = url.removeprefix(_SQLITE).partition("?")[0]
    return Path(path).absolute() if url.startswith(_SQLITE) and path not in ("", ":memory:") else None


def require_room(settings: Settings) -> None:
    for place in places(settings):
        fault = write_fault(place) or space_fault(place, free_bytes(place.directory))
        if fault is not None:
            raise InvalidSettings(fault)


def write_fault(place: Place) -> str | None:
    """Found out by writing a temporary file."""
    ground = _ground(place.directory)
    try:
        with TemporaryFile(dir=ground):
            return None
    except OSError as error:
        return (
            f"{place.directory} cannot be written to: {error.strerror};"
            f" make {ground} writable, or set {place.setting} to another directory"
        )


def space_fault(place: Place, free: int) -> str | None:
    if free >= LEAST:
        return None
    return (
        f"only {free // MB} MB are free on the disk of {place.directory}, {LEAST // MB} MB are needed:"
        f" free some, or set {place.setting} to a directory with more space"
    )


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(_ground(directory)).free


def _ground(directory: Path) -> Path:
    """The directory itself, or what it would be made in."""
    return next(each for each in (directory, *directory.parents) if os.path.lexists(each))
