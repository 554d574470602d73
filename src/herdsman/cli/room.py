"""Places that are written to: whether they can be, and how much room there is."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from herdsman.control.whereabouts import whereabouts
from herdsman.core.errors import InvalidSettings
from herdsman.settings import Settings

MB = 1024 * 1024
LEAST = 16 * MB
"""With less than this nothing is begun: a database that fills up in the middle helps nobody."""
LITTLE = 1024 * MB
_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    setting: str
    """What names it."""
    directory: Path


def places(settings: Settings) -> list[Place]:
    """The directories that a control plane writes to, each once."""
    found = [Place(setting="LOCAL_STATE_DIR", directory=whereabouts(settings).directory)]
    file = sqlite_file(settings)
    if file is not None and file.parent != found[0].directory:
        found.insert(0, Place(setting="DATABASE_URL", directory=file.parent))
    return found


def sqlite_file(settings: Settings) -> Path | None:
    url = settings.database.database_url.get_secret_value()
    path = url.removeprefix(_SQLITE).partition("?")[0]
    return Path(path).absolute() if url.startswith(_SQLITE) and path not in ("", ":memory:") else None


def require_room(settings: Settings) -> None:
    """One sentence with the way out, before anything is begun."""
    for place in places(settings):
        fault = write_fault(place) or space_fault(place, free_bytes(place.directory))
        if fault is not None:
            raise InvalidSettings(fault)


def write_fault(place: Place) -> str | None:
    """Found out by writing; what is written is gone at once."""
    ground = _ground(place.directory)
    try:
        with TemporaryFile(dir=ground):
            return None
    except OSError as error:
        return (
            f"{place.directory} cannot be written to: {error.strerror};"
            f" make {ground} writable for you, or set {place.setting} to another place"
        )


def space_fault(place: Place, free: int) -> str | None:
    if free >= LEAST:
        return None
    return (
        f"only {free // MB} MB are free on the disk of {place.directory}, and {LEAST // MB} MB are needed:"
        f" make room there, or set {place.setting} to a place with more"
    )


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(_ground(directory)).free


def _ground(directory: Path) -> Path:
    """The directory itself, or what it would be made in."""
    return next(each for each in (directory, *directory.parents) if os.path.lexists(each))
