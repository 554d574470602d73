"""What came as JSON, taken for no more than it is."""

from collections.abc import Mapping, Sequence
from typing import cast


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


def one_line(text: str, longest: int) -> str:
    """For a log or a page: printable, on one line, cut."""
    printable = "".join(each if each.isprintable() else " " for each in text[: 4 * longest])
    line = " ".join(printable.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
