"""What has changed from one document to the next, as lines that a person can read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    path: str
    old: object
    """None where there was nothing."""
    new: object


def changes(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Change, ...]:
    """By their paths. A value that is None is one that is not there."""
    before, now = dict(_leaves(old)), dict(_leaves(new))
    paths = sorted(before.keys() | now.keys())
    return tuple(
        Change(path=path, old=before.get(path), new=now.get(path))
        for path in paths
        if before.get(path) != now.get(path)
    )


def _leaves(document: Mapping[str, object], at: str = "") -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        path = f"{at}.{key}" if at else key
        if isinstance(value, Mapping):
            inner = cast("Mapping[str, object]", value)
            yield from _leaves(inner, path)
            # An entry without any limit is one all the same: it frees an agent from those of the others.
            if at and not any(each is not None for each in inner.values()):
                yield path, {}
        elif value is not None:
            yield path, value


def with_value(document: Mapping[str, object], path: str, value: object) -> dict[str, object]:
    """The document with another value at a path as `changes` writes it; None takes it away."""
    return _put(document, _steps(document, path), value)


def _steps(document: Mapping[str, object], path: str) -> tuple[str, ...]:
    """The name of an agent, a pool or a key may hold dots itself."""
    top, _, rest = path.partition(".")
    if not rest:
        return (top,)
    known = document.get(top)
    if isinstance(known, Mapping) and rest in known:
        return (top, rest)
    name, _, field = rest.rpartition(".")
    return (top, name, field) if top == _BY_AGENT and name else (top, rest)


_BY_AGENT = "agents"


def _put(document: Mapping[str, object], steps: tuple[str, ...], value: object) -> dict[str, object]:
    first, *rest = steps
    found = dict(document)
    inner = found.get(first)
    if rest:
        here: Mapping[str, object] = (
            cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else dict[str, object]()
        )
        found[first] = _put(here, tuple(rest), value)
    elif value is None:
        found.pop(first, None)
    else:
        found[first] = value
    return found
