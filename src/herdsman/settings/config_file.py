"""The configuration file: `herdsman.toml`, flat or with one table per group."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from herdsman.core.errors import InvalidSettings
from herdsman.settings.catalogue import groups
from herdsman.settings.model import Origin
from herdsman.settings.names import ACCEPTED, hint
from herdsman.settings.pools import read_pools
from herdsman.settings.sources import Found, Source


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    value: object
    table: str | None = None


def read_config_file(path: Path) -> Source:
    document = dict(_parse(path))
    pools, wrong = read_pools(document.pop("pool", {}), path)
    entries = tuple(_entries(document))
    found = {
        entry.key.upper(): Found(entry.value, Origin.FILE, entry.key, str(path))
        for entry in entries
        if entry.value != ""
    }
    problems = (*_problems(entries, path), *wrong)
    return Source({}, problems) if problems else Source(found, pools=pools)


def _parse(path: Path) -> Mapping[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not valid TOML: {error}.") from error


def _entries(document: Mapping[str, object]) -> Iterator[_Entry]:
    tables = groups()
    for key, value in document.items():
        if key in tables and isinstance(value, dict):
            table = cast("dict[str, object]", value)
            yield from (_Entry(inner, setting, table=key) for inner, setting in table.items())
        else:
            yield _Entry(key, value)


def _problems(entries: Sequence[_Entry], path: Path) -> Iterator[str]:
    keys = [entry.key for entry in entries]
    for entry in entries:
        setting = ACCEPTED.get(entry.key.upper()) if entry.key.islower() else None
        if setting is None:
            yield f"{entry.key} in {path} is not a setting{_hint(entry)}"
        elif entry.table not in (None, setting.group):
            yield f"{entry.key} in {path} stands under [{entry.table}] but belongs under [{setting.group}]."
        elif entry.table is not None and keys.count(entry.key) > 1:
            yield f"{entry.key} in {path} is given twice: at the top and under [{entry.table}]."


def _hint(entry: _Entry) -> str:
    known = [name.lower() for name in ACCEPTED]
    return hint(entry.key.lower(), known if entry.table else [*known, *groups()])
