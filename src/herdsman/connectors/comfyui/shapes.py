"""What came as JSON, taken for no more than it is."""

import re
from collections.abc import Mapping, Sequence
from typing import cast

_ARRAY = re.compile(r"\b(tensor|array)\(")
# Folders and a name. Not what follows a letter or a colon: those are fractions, words and addresses.
_PATH = re.compile(r"(?<![\w:/.\\])(?:[A-Za-z]:[\\/]|/)(?:[^\s\\/'\"<>|:]+[\\/])+([^\s\\/'\"<>|:]*)")


def as_object(value: object) -> Mapping[str, object]:
    """Empty where it is something else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    """Empty where it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def item(value: object, at: int) -> object:
    """One of a list; None where there is none."""
    items = as_list(value)
    return items[at] if -len(items) <= at < len(items) else None


def as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def as_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def without_insides(text: str) -> str:
    """What a service says of itself, without the folders of its machine and without whole tensors."""
    kept, at = "", 0
    while (found := _ARRAY.search(text, at)) is not None:
        end = _closing(text, found.end())
        kept += f"{text[at : found.end()]}…" + (")" if end < len(text) else "")
        at = end + 1
    without_arrays = kept + text[at:]
    return _PATH.sub(r"…/\1", without_arrays)


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` is closed; the length where it is not."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)
