"""Frozen values as plain documents of numbers, texts, lists and dicts, and back without a loss.

A dataclass is a row of cells. Which cell is which is told once for each kind of row, so that many rows stay small and a
document that another version wrote is understood or refused, never misread.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, TypeGuard, Union, cast, get_args, get_origin, get_type_hints

from herdsman.errors import InvalidRequest
from herdsman.fleet.model import FleetPolicy, Instance
from herdsman.fleet.scaling.observation import Demand, ScalingPolicy
from herdsman.fleet.snapshot import (
    ClaimedJob,
    ListingFailed,
    PoolLife,
    PoolSnapshot,
    Snapshot,
    WorkerSnapshot,
)
from herdsman.jobs.model import ClaimKey

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
    needed = [
        each.name
        for each in fields(kind)
        if not (each.default is not MISSING or each.default_factory is not MISSING)
    ]
    if missing := [name for name in needed if name not in names]:
        raise Odd(f"it has no {missing[0]!r} of {kind.__name__}")
    return tuple((name, reader(hints[name])) for name in names)


@cache
def _hints(kind: type) -> dict[str, Any]:
    found = get_type_hints(kind)
    return {each.name: found[each.name] for each in fields(kind)}


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
VERSION = 1
ROWS = (PoolSnapshot, PoolLife, FleetPolicy, Demand, WorkerSnapshot, ClaimedJob, ClaimKey, Instance)
LISTED = tuple[Instance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    seen: Snapshot
    planned: int
    """How many steps were decided on."""
    taken: tuple[int, ...] | None = None
    """The places of those that were taken up, where only some were wanted; None for all of them."""


def write(recording: Recording) -> dict[str, Any]:
    """Scaling policies are written by their names: they are code."""
    seen = recording.seen
    told = {name: plain(getattr(seen, name)) for name in _told()}
    unseen = {"unseen": seen.instances.why} if isinstance(seen.instances, ListingFailed) else None
    return {
        "version": VERSION,
        "fields": heads(*ROWS),
        "planned": recording.planned,
        "taken": plain(recording.taken),
        "policies": sorted(seen.policies),
        "seen": {**told, "instances": unseen or plain(seen.instances)},
    }


def read(document: Mapping[str, Any], installed: Mapping[str, ScalingPolicy]) -> Recording:
    """The very same as was written, with the policies that are installed here under the names that were then.

    `InvalidRequest` for a document of another version, or one that is damaged.
    """
    try:
        return _read(document, installed)
    except (Odd, KeyError, ValueError, TypeError, AttributeError, OverflowError, DecimalException) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidRequest(
            f"what this cycle saw cannot be read: {said}; ask the version of Herdsman that recorded it"
        ) from error


def _read(document: Mapping[str, Any], installed: Mapping[str, ScalingPolicy]) -> Recording:
    if document.get("version") != VERSION:
        raise Odd(
            f"it is of version {document.get('version')!r}, and this version of Herdsman knows {VERSION}"
        )
    told: Heads = {kind: tuple(names) for kind, names in document["fields"].items()}
    taken: Any = document["taken"]
    names: list[str] = document["policies"]
    return Recording(
        seen=_snapshot(
            document["seen"], told, {each: installed[each] for each in names if each in installed}
        ),
        planned=reader(int)(document["planned"], told),
        taken=None if taken is None else reader(tuple[int, ...])(taken, told),
    )


def _snapshot(cells: Mapping[str, Any], told: Heads, policies: Mapping[str, ScalingPolicy]) -> Snapshot:
    readers = _told()
    if unknown := [name for name in cells if name not in readers]:
        raise Odd(f"it has a {unknown[0]!r}, which this version does not know")
    values = {name: readers[name](cell, told) for name, cell in cells.items()}
    seen = Snapshot(**cast("Any", {**values, "policies": policies}))
    used = {pool.policy.scaling for pool in seen.pools}
    if gone := sorted(used - policies.keys()):
        raise Odd(f"it was decided by the scaling policy {gone[0]!r}, which is not installed")
    return seen


@cache
def _told() -> dict[str, Callable[[Any, Heads], Any]]:
    """Each part of a snapshot but the policies, and how it is read."""
    hints = get_type_hints(Snapshot)
    found = {
        each.name: reader(hints[each.name])
        for each in fields(Snapshot)
        if each.name not in ("policies", "instances")
    }
    return {**found, "instances": _instances}


def _instances(cells: Any, told: Heads) -> LISTED | ListingFailed:
    if isinstance(cells, dict):
        return ListingFailed(reader(str)(cast("dict[str, Any]", cells)["unseen"], told))
    return cast("LISTED", reader(LISTED)(cells, told))


Difference = list[Any]
SAME: Difference = []


def difference(old: Any, new: Any) -> Difference:
    """`applied(old, difference(old, new))` is `new`. Places of dicts are their keys."""
    if type(old) is not type(new):
        return ["new", new]
    if _is_dict(new):
        return _cells({key: (old[key], new[key]) for key in new}) if list(old) == list(new) else ["new", new]
    if not _is_list(new):
        return SAME if old == new else ["new", new]
    if _rows(old) and _rows(new):
        return _by_name(old, new)
    if len(old) != len(new):
        return ["new", new]
    return _cells({str(at): (old[at], new[at]) for at in range(len(new))})


def applied(old: Any, change: Difference) -> Any:
    if not change:
        return old
    kind, told = change
    if kind == "new":
        return told
    if kind == "rows":
        return [_delta_row(old, each) for each in told]
    if _is_dict(old):
        return {key: applied(cell, told.get(key, SAME)) for key, cell in old.items()}
    return [applied(cell, told.get(str(at), SAME)) for at, cell in enumerate(old)]


def _cells(pairs: dict[str, tuple[Any, Any]]) -> Difference:
    found = {place: change for place, (old, new) in pairs.items() if (change := difference(old, new))}
    return ["cells", found] if found else SAME


def _rows(value: Any) -> TypeGuard[list[list[Any]]]:
    """Each begins with its name."""
    return _is_list(value) and all(_is_list(each) and each and isinstance(each[0], str) for each in value)


def _by_name(old: list[list[Any]], new: list[list[Any]]) -> Difference:
    """They may come, go and change places."""
    places = {row[0]: at for at, row in enumerate(old)}
    told = [_against(old, places.get(row[0]), row) for row in new]
    return SAME if told == list(range(len(old))) else ["rows", told]


def _against(old: list[list[Any]], place: int | None, row: list[Any]) -> Any:
    if place is None:
        return {"row": row}
    change = difference(old[place], row)
    return [place, change] if change else place


def _delta_row(old: list[Any], told: Any) -> Any:
    if _is_dict(told):
        return told["row"]
    place, change = told if _is_list(told) else (told, SAME)
    return applied(old[place], change)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
