"""Frozen values as plain documents of numbers, texts, lists and dicts, and back without a loss.

A dataclass is a row of cells. Which cell is which is told once for each kind of row, so that many rows stay small and a
document that another version wrote is understood or refused, never misread.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, Union, cast, get_args, get_origin, get_type_hints

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)

Heads = Mapping[str, tuple[str, ...]]
"""By the kind of row: what its cells are."""
Reader = Callable[[Any, Heads], Any]


class Odd(ValueError):
    """A document that is not what it should be, in a few words."""


def plain(value: object) -> Any:
    """Instants and spans in microseconds; what is exact stays exact."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return (value - EPOCH) // TICK
    if isinstance(value, timedelta):
        return value // TICK
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, tuple):
        return [plain(each) for each in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in cast("Mapping[str, object]", value).items()}
    assert is_dataclass(value), f"{type(value).__name__} is not written down anywhere yet"
    return [plain(getattr(value, each.name)) for each in fields(value)]


def heads(*kinds: type) -> dict[str, list[str]]:
    """What the cells of each kind of row are."""
    return {kind.__name__: list(_hints(kind)) for kind in kinds}


@cache
def reader(kind: Any) -> Reader:
    """How a cell of this type is read back; `Odd` for one that is of another."""
    if isinstance(kind, NewType):
        return reader(kind.__supertype__)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _optional(inner)
    if origin is tuple:
        return _several(reader(inner[0])) if inner[-1] is Ellipsis else _pair(tuple(map(reader, inner)))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(reader(inner[1]))
    if is_dataclass(kind):
        return lambda cells, told: _row(cast("type", kind), cells, told)
    if issubclass(kind, Enum):
        return lambda cell, _told: kind(cell)
    return _LEAVES[kind]


def _optional(kinds: tuple[Any, ...]) -> Reader:
    (kind,) = (each for each in kinds if each is not NoneType)
    inner = reader(kind)
    return lambda cell, told: None if cell is None else inner(cell, told)


def _several(each: Reader) -> Reader:
    return lambda cells, told: tuple([each(cell, told) for cell in _typed(cells, list)])


def _pair(each: tuple[Reader, ...]) -> Reader:
    return lambda cells, told: tuple(
        read(cell, told) for read, cell in zip(each, _typed(cells, list), strict=True)
    )


def _mapping(each: Reader) -> Reader:
    return lambda cells, told: {
        _typed(key, str): each(cell, told) for key, cell in _typed(cells, dict).items()
    }


def _row(kind: type, cells: Any, told: Heads) -> Any:
    names = told.get(kind.__name__)
    if names is None:
        raise Odd(f"it does not say what the cells of {kind.__name__} are")
    readers = _readers(kind, names)
    return kind(
        **{name: read(cell, told) for (name, read), cell in zip(readers, _typed(cells, list), strict=True)}
    )


@cache
def _readers(kind: type, names: tuple[str, ...]) -> tuple[tuple[str, Reader], ...]:
    hints = _hints(kind)
    if unknown := [name for name in names if name not in hints]:
        raise Odd(f"it has a {unknown[0]!r} of {kind.__name__}, which this version does not know")
    needed = [each.name for each in fields(kind) if not _has_default(each)]
    if missing := [name for name in needed if name not in names]:
        raise Odd(f"it has no {missing[0]!r} of {kind.__name__}")
    return tuple((name, reader(hints[name])) for name in names)


@cache
def _hints(kind: type) -> dict[str, Any]:
    found = get_type_hints(kind)
    return {each.name: found[each.name] for each in fields(kind)}


def _has_default(each: "Field[Any]") -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _typed(cell: Any, *kinds: type) -> Any:
    # A truth value is a number to Python, and would come back as one.
    if not isinstance(cell, kinds) or (isinstance(cell, bool) and bool not in kinds):
        raise Odd(f"it has {str(cell)[:40]!r} where there should be {kinds[0].__name__}")
    return cell


_LEAVES: Mapping[Any, Reader] = {
    str: lambda cell, _told: _typed(cell, str),
    int: lambda cell, _told: _typed(cell, int),
    bool: lambda cell, _told: _typed(cell, bool),
    # A whole number may stand where a fraction could, and is left one: sentences would show the difference.
    float: lambda cell, _told: _typed(cell, float, int),
    datetime: lambda cell, _told: EPOCH + _typed(cell, int) * TICK,
    timedelta: lambda cell, _told: _typed(cell, int) * TICK,
    Decimal: lambda cell, _told: Decimal(_typed(cell, str)),
}
