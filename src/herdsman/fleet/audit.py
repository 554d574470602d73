"""Where the provider and the database disagree about what there is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from herdsman.fleet.actions import (
    Action,
    AttachInstance,
    ConfirmTerminated,
    DrainIdleWorker,
    EndInstance,
    FailWorker,
    RequeueJob,
    TerminateOrphan,
)
from herdsman.fleet.installation import Stamp
from herdsman.fleet.model import Instance, InstanceRef
from herdsman.fleet.phases.instances import orphans, recognise
from herdsman.fleet.snapshot import ListingFailed, Snapshot, WorkerSnapshot
from herdsman.ids import WorkerId


class Kind(StrEnum):
    STRAY = "stray"
    """An instance that no living worker owns: money for nothing."""
    TWIN = "twin"
    """A second instance of one worker."""
    FOREIGN = "foreign"
    """An instance with our name that another database started, or that does not say which one did."""
    UNATTACHED = "unattached"
    """An instance that carries the name of a worker which does not know of it yet."""
    MISSING = "missing"
    """A worker whose instance the provider does not list."""


UNOWNED = (Kind.STRAY, Kind.TWIN, Kind.FOREIGN)
"""Instances that no worker of this database runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    kind: Kind
    text: str
    worker_id: WorkerId | None = None
    instance: InstanceRef | None = None
    cost_per_hour: Decimal = Decimal(0)


def differences(seen: Snapshot) -> tuple[Difference, ...]:
    """Both ways. Empty on partial sight: what could not be looked at proves nothing."""
    if isinstance(seen.instances, ListingFailed):
        return ()
    return (*_beyond_the_table(seen), *_beyond_the_provider(seen, seen.instances))


def doubts(seen: Snapshot) -> str:
    """Why nothing may be concluded from what was seen; empty when something may."""
    if isinstance(seen.instances, ListingFailed):
        return f"the provider could not be looked at: {seen.instances.why}"
    if seen.doubt:
        return seen.doubt
    if seen.instances and not seen.workers:
        return (
            f"the provider has {len(seen.instances)} instances of ours and the table of workers is empty:"
            " is this the right database?"
        )
    return ""


def repairs(action: Action, found: Iterable[Difference]) -> bool:
    """Whether an action of a cycle is about one of the differences."""
    match action:
        case TerminateOrphan():
            return action.ref in {each.instance for each in found if each.kind in UNOWNED}
        case AttachInstance():
            return True
        case FailWorker() | DrainIdleWorker() | RequeueJob() | EndInstance() | ConfirmTerminated():
            return action.worker_id in {each.worker_id for each in found if each.kind is Kind.MISSING}
        case _:
            return False


def _beyond_the_table(seen: Snapshot) -> Iterator[Difference]:
    listed = () if isinstance(seen.instances, ListingFailed) else seen.instances
    owners = {worker.instance_name: worker for worker in seen.workers if worker.alive}
    lost = {action.ref: action.why for action in recognise(seen) if isinstance(action, AttachInstance)}
    unowned = orphans(seen)
    for instance in listed:
        owner = owners.get(instance.name)
        if instance.ref in lost:
            kind, text = Kind.UNATTACHED, lost[instance.ref].text
        elif instance.ref in unowned:
            kind, text = Kind.STRAY if owner is None else Kind.TWIN, unowned[instance.ref].text
        elif owner is None and seen.workers:
            kind, text = Kind.FOREIGN, _foreign(instance)
        else:
            continue
        yield Difference(
            kind=kind,
            text=text,
            worker_id=owner.id if owner else None,
            instance=instance.ref,
            cost_per_hour=instance.cost_per_hour,
        )


def _foreign(instance: Instance) -> str:
    stamp = Stamp.of(instance.name)
    if stamp is None:
        return f"{instance.name} does not say which database started it: an older version, or a person"
    return f"{instance.name} was started by another database, {stamp.installation}"


def _beyond_the_provider(seen: Snapshot, listed: Iterable[Instance]) -> Iterator[Difference]:
    names = {instance.name for instance in listed}
    for worker in seen.workers:
        if worker.alive and worker.instance_name is not None and worker.instance_name not in names:
            yield Difference(
                kind=Kind.MISSING, text=_missing(worker), worker_id=worker.id, instance=worker.instance_ref
            )


def _missing(worker: WorkerSnapshot) -> str:
    if worker.instance_ref is None:
        return f"it is {worker.state}, and no instance with its name is listed"
    return f"it is {worker.state}, and its instance is not listed"
