"""What a cycle saw and how much of its plan it took up, as a document from which it can be asked again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import DecimalException
from functools import cache
from typing import Any, cast, get_type_hints

from herdsman.core.errors import InvalidRequest
from herdsman.core.fleet import HeldJob, PoolLife, SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.instances import Instance
from herdsman.core.model import ClaimKey
from herdsman.core.plain import Heads, Odd, heads, plain, reader
from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.demand import Demand
from herdsman.core.scaling.observation import ScalingPolicy

VERSION = 1
ROWS = (SeenPool, PoolLife, FleetPolicy, Demand, SeenWorker, HeldJob, ClaimKey, Instance)
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
    unseen = {"unseen": seen.instances.why} if isinstance(seen.instances, Unseen) else None
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


def _instances(cells: Any, told: Heads) -> LISTED | Unseen:
    if isinstance(cells, dict):
        return Unseen(reader(str)(cast("dict[str, Any]", cells)["unseen"], told))
    return cast("LISTED", reader(LISTED)(cells, told))
