"""The record of a cycle: what it observed, planned and did, as plain documents.

A snapshot is written without a loss and can be read back. In it a dataclass is a row of cells; the names of the cells are
given once for each type, so that many rows stay small and a document of another version is understood or refused, never
misread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NewType, Union, cast, get_args, get_origin, get_type_hints

from herdsman.errors import InvalidRequest
from herdsman.explain.rules import NextWorker, next_worker
from herdsman.fleet import actions
from herdsman.fleet.decide import Compared, Plan, Planned
from herdsman.fleet.model import FleetPolicy, Instance
from herdsman.fleet.scaling import Demand, ScalingPolicy
from herdsman.fleet.snapshot import ClaimedJob, ListingFailed, PoolLife, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.jobs.model import ClaimKey
from herdsman.states import WorkerStatus

MOST_POOLS = 50
MOST_JUDGED = 500
"""Pools times workers up to which a cycle computes what would have added one more: that judges each of them many times."""
TOO_MANY = "so many workers and pools were seen that it was not asked what would have added one more"


@dataclass(frozen=True, slots=True)
class Outcome:
    step: Planned
    done: bool
    said: str = ""
    """Why it was not done, or what is to be known about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    started_at: datetime | None
    epoch: int | None
    seen: Snapshot | None
    outcomes: tuple[Outcome, ...] = ()
    skipped: str = ""
    """Why nothing was observed."""
    shadow: tuple[Compared, ...] = ()
    """What a second policy would have done; of that, nothing is done."""

    @property
    def complete(self) -> bool:
        """Everything could be observed and done."""
        return self.seen is not None and not self._skipped and all(each.done for each in self.outcomes)

    @property
    def fault(self) -> str:
        """Why it is not complete, as one sentence; empty where it is."""
        undone = [each for each in self.outcomes if not each.done]
        if self.seen is None or not undone:
            return self._skipped
        first = f"{type(undone[0].step.action).__name__}: {undone[0].said or 'it does not say why'}"
        return f"{len(undone)} of {len(self.outcomes)} steps could not be done, the first is {first}"

    @property
    def _skipped(self) -> str:
        if self.skipped or self.seen is None or not isinstance(self.seen.instances, ListingFailed):
            return self.skipped
        return f"the provider could not be listed: {self.seen.instances.reason}"

    def summary(self) -> dict[str, object]:
        done = Counter(type(outcome.step.action) for outcome in self.outcomes if outcome.done)
        status: dict[str, int] = {}
        if self.seen is not None:
            states = Counter(worker.status for worker in self.seen.workers)
            counted = (WorkerStatus.SPAWNING, WorkerStatus.ACTIVE, WorkerStatus.TERMINATING)
            status = {
                "queued_tasks": sum(pool.queued for pool in self.seen.pools),
                **{f"{state}_workers": states[state] for state in counted},
                "total_workers": sum(states[state] for state in counted),
            }
        return {
            "timestamp": self.started_at.isoformat() if self.started_at else None,
            "actions": {
                "workers_promoted": done[actions.PromoteWorker],
                "workers_failed": done[actions.FailWorker],
                "workers_spawned": done[actions.SpawnWorker],
                "workers_terminated": done[actions.ConfirmTerminated],
                "workers_drained": done[actions.DrainIdleWorker] + done[actions.DrainWorker],
                "tasks_reset": done[actions.RequeueJob],
            },
            "status": status,
            "skipped": self._skipped,
            **({"shadow": shadow_documents(self.shadow)} if self.shadow else {}),
        }

    def steps(self) -> list[dict[str, object]]:
        """A step about a worker is about its pool, too."""
        workers = () if self.seen is None else self.seen.workers
        pools: dict[Any, str] = {each.id: each.pool for each in workers}
        found: list[dict[str, object]] = []
        for outcome in self.outcomes:
            step: dict[str, Any] = step_document(outcome.step)
            home = pools.get(step.get("worker_id", step.get("about")))
            if "pool" not in step and home is not None:
                step["pool"] = home
            found.append({**step, "done": outcome.done, "said": outcome.said})
        return found

    def document(self) -> dict[str, Any]:
        """As the API answers with it."""
        return {**self.summary(), "complete": self.complete, "steps": self.steps()}


def step_document(step: Planned) -> dict[str, object]:
    action: dict[str, Any] = asdict(step.action)
    reason = action.pop("reason")
    said = {"code": reason["code"], "reason": reason["text"], "numbers": dict(reason["numbers"])}
    return {"phase": step.phase, "action": type(step.action).__name__, **action, **said}


def shadow_documents(compared: Sequence[Compared]) -> list[dict[str, object]]:
    """What differs comes first, and alone has its details."""
    found: list[dict[str, object]] = []
    first = sorted(compared, key=lambda each: (not each.differs and not each.error, each.pool))
    for each in first[:MOST_POOLS]:
        head: dict[str, object] = {"pool": each.pool, "policy": each.policy, "differs": each.differs}
        if each.error:
            head |= {"live": asdict(each.live), "error": each.error}
        elif each.differs and each.shadow is not None:
            head |= {"live": asdict(each.live), "shadow": asdict(each.shadow)}
        found.append(head)
    return found


def shadow_outcome(compared: Sequence[Compared]) -> str | None:
    """Of a whole cycle, in one word; None where no pool has a shadow."""
    if any(each.error for each in compared):
        return "failed"
    return ("differs" if any(each.differs for each in compared) else "agrees") if compared else None


def counts(seen: Snapshot) -> dict[str, object]:
    """The numbers that a page plots, for each cycle again: few and small."""
    return {
        "queued": {each.id: each.queued for each in seen.pools[:MOST_POOLS]},
        "running": sum(_claimed(each) for each in seen.workers),
    }


def inputs(seen: Snapshot, plan: Plan) -> dict[str, object]:
    """What a person can read of what the cycle observed, and what would have added one more worker."""
    judged = len(seen.pools) * len(seen.workers) <= MOST_JUDGED
    failed = seen.instances if isinstance(seen.instances, ListingFailed) else None
    return {
        "now": seen.now.isoformat(),
        "pools": {each.id: _pool(seen, each, plan if judged else None) for each in seen.pools[:MOST_POOLS]},
        "more_pools": max(0, len(seen.pools) - MOST_POOLS),
        "instances": None if isinstance(seen.instances, ListingFailed) else len(seen.instances),
        "provider_unseen": None if failed is None else failed.reason,
        "spent": {span: float(amount) for span, amount in seen.spent.items()},
        "most_together": seen.most_together,
        "note": "" if judged else TOO_MANY,
    }


def _pool(seen: Snapshot, pool: PoolSnapshot, plan: Plan | None) -> dict[str, object]:
    workers = list(seen.of(pool.id, *WorkerStatus))
    following = None if plan is None else _next_worker(seen, pool, plan)
    reason = None if following is None else following.blocked_by
    return {
        "queued": pool.queued,
        "workers": dict(Counter(each.status.value for each in workers)),
        "jobs_held": sum(_claimed(each) for each in workers),
        "min_workers": pool.policy.min_workers,
        "max_workers": pool.policy.max_workers,
        "scaling": pool.policy.scaling,
        "failures": pool.failures,
        "starts": pool.starts,
        "last_scaled_at": None if pool.last_scaled_at is None else pool.last_scaled_at.isoformat(),
        "wait_until": None if pool.wait_until is None else pool.wait_until.isoformat(),
        "stopped_by": pool.stopped_by,
        "drained": pool.drained,
        "state": None if pool.life is None else pool.life.status.value,
        "next": following
        and {
            "queued": following.queued,
            "at_queued": following.at_queued,
            "blocked_by": reason and {"code": reason.code, "text": reason.text, "numbers": dict(reason.numbers)},
        },
    }


def _next_worker(seen: Snapshot, pool: PoolSnapshot, plan: Plan) -> NextWorker:
    """A plan that adds a worker has shown that this queue is long enough; else many plans are tried."""
    if not any(isinstance(each, actions.SpawnWorker) and each.pool == pool.id for each in plan.actions):
        return next_worker(seen, pool.id)
    noted = (each.reason for each in plan.actions if isinstance(each, actions.Note) and each.about == pool.id)
    return NextWorker(queued=pool.queued, at_queued=pool.queued, blocked_by=next(noted, None))


def recorded_next_worker(noted: Mapping[str, Any] | None) -> NextWorker | None:
    """What was written down of a pool's next worker; None where nothing was."""
    if noted is None:
        return None
    reason = noted["blocked_by"]
    blocked_by = (
        None
        if reason is None
        else actions.ActionReason(actions.Code(reason["code"]), reason["text"], reason["numbers"])
    )
    return NextWorker(queued=noted["queued"], at_queued=noted["at_queued"], blocked_by=blocked_by)


def _claimed(worker: WorkerSnapshot) -> int:
    return (worker.job is not None) + len(worker.batch)


VERSION = 1
ROWS = (PoolSnapshot, PoolLife, FleetPolicy, Demand, WorkerSnapshot, ClaimedJob, ClaimKey, Instance)
LISTED = tuple[Instance, ...]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TICK = timedelta(microseconds=1)
Heads = Mapping[str, tuple[str, ...]]
"""By the type of row: the names of its cells."""
Reader = Callable[[Any, Heads], Any]


class Unreadable(ValueError):
    """Why a document is not what it should be, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A cycle that can be decided again."""

    seen: Snapshot
    planned: int
    """How many steps were decided on."""
    taken: tuple[int, ...] | None = None
    """The indices of those that were carried out, where only some were wanted; None for all of them."""


def write(recording: Recording) -> dict[str, Any]:
    """Scaling policies are written by their names: they are code."""
    seen = recording.seen
    failed = {"unseen": seen.instances.reason} if isinstance(seen.instances, ListingFailed) else None
    return {
        "version": VERSION,
        "fields": {kind.__name__: list(_hints(kind)) for kind in ROWS},
        "planned": recording.planned,
        "taken": plain(recording.taken),
        "policies": sorted(seen.policies),
        "seen": {
            **{name: plain(getattr(seen, name)) for name in _snapshot_readers()},
            "instances": failed or plain(seen.instances),
        },
    }


def read(document: Mapping[str, Any], installed: Mapping[str, ScalingPolicy]) -> Recording:
    """The very same as was written, with the policies that are installed here under the names that were then.

    `InvalidRequest` for a document of another version, or one that is damaged.
    """
    try:
        if document.get("version") != VERSION:
            found = document.get("version")
            raise Unreadable(f"it is of version {found!r}, and this version of Herdsman knows {VERSION}")
        heads: Heads = {kind: tuple(names) for kind, names in document["fields"].items()}
        named: list[str] = document["policies"]
        policies = {each: installed[each] for each in named if each in installed}
        cells = document["seen"]
        readers = _snapshot_readers()
        if unknown := [name for name in cells if name not in readers and name != "instances"]:
            raise Unreadable(f"it has a {unknown[0]!r}, which this version does not know")
        values = {name: readers[name](cell, heads) for name, cell in cells.items() if name in readers}
        listed: Any = cells["instances"]
        if isinstance(listed, dict):
            values["instances"] = ListingFailed(reader(str)(cast("dict[str, Any]", listed)["unseen"], heads))
        else:
            values["instances"] = reader(LISTED)(listed, heads)
        seen = Snapshot(**values, policies=policies)
        if gone := sorted({pool.policy.scaling for pool in seen.pools} - policies.keys()):
            raise Unreadable(f"it was decided by the scaling policy {gone[0]!r}, which is not installed")
        return Recording(
            seen=seen,
            planned=reader(int)(document["planned"], heads),
            taken=reader(tuple[int, ...] | None)(document["taken"], heads),
        )
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, DecimalException) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InvalidRequest(
            f"what this cycle saw cannot be read: {said}; ask the version of Herdsman that recorded it"
        ) from error


@cache
def _snapshot_readers() -> dict[str, Reader]:
    """For every part but the policies, which are code, and the instances, which may not have been listed."""
    special = ("policies", "instances")
    return {name: reader(kind) for name, kind in _hints(Snapshot).items() if name not in special}


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


@cache
def reader(kind: Any) -> Reader:
    """How a cell of this type is read back; `Unreadable` for one that is of another."""
    if isinstance(kind, NewType):
        return reader(kind.__supertype__)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (only,) = (reader(each) for each in inner if each is not NoneType)
        return lambda cell, heads: None if cell is None else only(cell, heads)
    if origin is tuple and inner[-1] is Ellipsis:
        each = reader(inner[0])
        return lambda cells, heads: tuple([each(cell, heads) for cell in _typed(cells, list)])
    if origin is tuple:
        several = tuple(map(reader, inner))
        return lambda cells, heads: tuple(
            one(cell, heads) for one, cell in zip(several, _typed(cells, list), strict=True)
        )
    if origin is not None and issubclass(origin, Mapping):
        value = reader(inner[1])
        return lambda cells, heads: {_typed(key, str): value(cell, heads) for key, cell in _typed(cells, dict).items()}
    if is_dataclass(kind):
        return lambda cells, heads: _row(cast("type", kind), cells, heads)
    if issubclass(kind, Enum):
        return lambda cell, _heads: kind(cell)
    return _LEAVES[kind]


def _row(kind: type, cells: Any, heads: Heads) -> Any:
    names = heads.get(kind.__name__)
    if names is None:
        raise Unreadable(f"it does not say what the cells of {kind.__name__} are")
    readers = _row_readers(kind, names)
    return kind(**{name: one(cell, heads) for (name, one), cell in zip(readers, _typed(cells, list), strict=True)})


@cache
def _row_readers(kind: type, names: tuple[str, ...]) -> tuple[tuple[str, Reader], ...]:
    hints = _hints(kind)
    if unknown := [name for name in names if name not in hints]:
        raise Unreadable(f"it has a {unknown[0]!r} of {kind.__name__}, which this version does not know")
    for each in fields(kind):
        needed = each.default is MISSING and each.default_factory is MISSING
        if needed and each.name not in names:
            raise Unreadable(f"it has no {each.name!r} of {kind.__name__}")
    return tuple((name, reader(hints[name])) for name in names)


@cache
def _hints(kind: type) -> dict[str, Any]:
    found = get_type_hints(kind)
    return {each.name: found[each.name] for each in fields(kind)}


def _typed(cell: Any, *kinds: type) -> Any:
    # A truth value is a number to Python, and would come back as one.
    if not isinstance(cell, kinds) or (isinstance(cell, bool) and bool not in kinds):
        raise Unreadable(f"it has {str(cell)[:40]!r} where there should be {kinds[0].__name__}")
    return cell


_LEAVES: Mapping[Any, Reader] = {
    str: lambda cell, _heads: _typed(cell, str),
    int: lambda cell, _heads: _typed(cell, int),
    bool: lambda cell, _heads: _typed(cell, bool),
    # A whole number may stand where a fraction could, and is left one: sentences would show the difference.
    float: lambda cell, _heads: _typed(cell, float, int),
    datetime: lambda cell, _heads: EPOCH + _typed(cell, int) * TICK,
    timedelta: lambda cell, _heads: _typed(cell, int) * TICK,
    Decimal: lambda cell, _heads: Decimal(_typed(cell, str)),
}
