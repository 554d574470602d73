"""Secrets in files that only their owner can read."""

import os
import stat
from pathlib import Path
from tempfile import mkstemp

from herdsman.errors import InvalidSettings

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_secret(path: Path) -> str | None:
    """None when there is no such file. One that others can read is refused: it is no secret any more."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from error
    if mode & _OTHERS:
        raise InvalidSettings(f"{path} holds a secret, but others can read it: run chmod 600 {path}")
    return text


def write_secret(path: Path, text: str) -> None:
    """In the place of what was there."""
    try:
        _draft(path, text).replace(path)
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be written: {error}") from error


def write_secret_once(path: Path, text: str) -> None:
    """Does nothing when the file is there: of several that start at once, one decides for all."""
    try:
        draft = _draft(path, text)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
        finally:
            draft.unlink()
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be written: {error}") from error


def _draft(path: Path, text: str) -> Path:
    """Beside its place, to be put there whole: a reader never finds half of a secret."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = mkstemp(prefix=f".{path.name}.", dir=path.parent)  # readable only by its owner
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{text}\n")
    return Path(draft)
