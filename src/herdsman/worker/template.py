"""Command templates: split into arguments first, filled afterwards, so that no value can become a second argument."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import cast

from herdsman.worker.context import UserError

NAMES = ("job_id", "attempt", "workspace", "payload_file", "payload")
_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_BRACES = {"{{": "{", "}}": "}"}


def split(template: str) -> list[str]:
    """The arguments, each with its holes; `ValueError` when the text is no command."""
    words = shlex.split(template)
    if not words:
        raise ValueError("it names no program")
    for word in words:
        for hole in _HOLE.finditer(word):
            if hole[1] is not None and hole[1].partition(".")[0] not in NAMES:
                raise ValueError(f"{hole[0]} is unknown; known are {', '.join(NAMES)} and payload.FIELD")
    return words


def fill(words: list[str], values: Mapping[str, object]) -> list[str]:
    return [_HOLE.sub(lambda hole: _value(hole, values), word) for word in words]


def _value(hole: re.Match[str], values: Mapping[str, object]) -> str:
    if hole[1] is None:
        return _BRACES[hole[0]]
    text = _text(_look_up(hole[1], values))
    if "\0" in text:
        raise UserError(f"{hole[1]} contains a NUL character, which no argument can hold")
    return text


def _look_up(path: str, values: Mapping[str, object]) -> object:
    here: object = values
    for step in path.split("."):
        inside = cast("Mapping[str, object]", here if isinstance(here, dict) else {})
        if step not in inside:
            raise UserError(f"the job has no {path}, which its command needs")
        here = inside[step]
    return here


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
