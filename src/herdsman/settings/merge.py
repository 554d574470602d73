"""Which place has the say on each setting; a secret may be given as the path of a file that holds it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from herdsman.settings.catalogue import CATALOGUE, Setting
from herdsman.settings.sources import Found, Source

_LONGEST_SECRET = 65_536


def merged(sources: Sequence[Source], cwd: Path) -> Source:
    """One source out of several, the first one having the first say. Only a file that counts is opened."""
    chosen = {setting.name: _choose(setting, sources, cwd) for setting in CATALOGUE.values()}
    found = {name: choice for name, choice in chosen.items() if isinstance(choice, Found)}
    problems = [problem for source in sources for problem in source.problems]
    problems += [choice for choice in chosen.values() if isinstance(choice, str)]
    pools = {name: own for source in sources for name, own in source.pools.items()}
    return Source(found, tuple(problems), pools)


def _choose(setting: Setting, sources: Sequence[Source], cwd: Path) -> Found | str | None:
    """What was found, or the problem with it, or nothing."""
    for source in sources:
        direct, by_file = source.found.get(setting.name), source.found.get(setting.file_name or "")
        if direct and by_file and direct.prefixed == by_file.prefixed:
            return f"{direct.spelled} and {by_file.spelled} are both set in {direct.where}; set one of them."
        if by_file and not (direct and direct.prefixed):
            return _open(by_file, setting, cwd)
        if direct:
            return direct
    return None


def _open(by_file: Found, setting: Setting, cwd: Path) -> Found | str:
    path = cwd / str(by_file.value)
    named = f"{path}, the file that {by_file.spelled} in {by_file.where} names,"
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_SECRET + 1).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        return (
            f"{named} cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not text'}."
        )
    if not text or len(text) > _LONGEST_SECRET:
        return f"{named} must hold from 1 to {_LONGEST_SECRET} characters."
    return replace(by_file, value=text, spelled=setting.name, where=str(path))
