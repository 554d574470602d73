"""Which types of jobs run on which external service, as the settings and their file say."""

import tomllib
from pathlib import Path
from typing import Any, cast

from herdsman.core.errors import InvalidSettings
from herdsman.settings.model import Settings

COMFYUI = "comfyui"


def services_of(settings: Settings) -> dict[str, dict[str, Any]]:
    """By type of jobs: the name of a connector under `connector`, and its options beside it."""
    chosen = settings.connectors
    found = (
        {}
        if chosen.worker_connectors_file is None
        else _read(Path(chosen.worker_connectors_file).expanduser())
    )
    if chosen.comfyui_url is not None and COMFYUI not in found:
        found[COMFYUI] = {"connector": COMFYUI, "url": chosen.comfyui_url}
    return found


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidSettings(f"WORKER_CONNECTORS_FILE {path} cannot be read: {error}") from error
    return {name: _table(path, name, table) for name, table in tables.items()}


def _table(path: Path, name: str, table: object) -> dict[str, Any]:
    options = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    if not isinstance(options.get("connector"), str):
        raise InvalidSettings(
            f"{path}: {name!r} names no connector: write a table [{name}] with connector = "
            '"comfyui", "http" or another one that is installed'
        )
    return options
