"""Instances and workers are matched by name: a lost answer is found again, and what belongs to nobody is ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from herdsman.fleet import actions
from herdsman.fleet.actions import ActionReason, Code
from herdsman.fleet.model import Instance, InstanceRef, Stamp
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import WorkerId
from herdsman.states import WorkerStatus


def recognise(seen: Snapshot) -> Iterable[actions.Action]:
    """A worker whose creation had an unknown outcome gets the instance that carries its name."""
    if isinstance(seen.instances, ListingFailed):
        return
    lost = [each for each in seen.workers if each.instance_ref is None and each.instance_name and each.alive]
    # Of those that share a name, the same one each time.
    ordered = sorted(seen.instances, key=lambda each: each.ref, reverse=True) if lost else ()
    found = {each.name: each for each in ordered}
    for worker in lost:
        named = found.get(worker.instance_name or "")
        if named is not None:
            reason = ActionReason(Code.FOUND_BY_NAME, f"found by its name {named.name}")
            yield actions.AttachInstance(worker.id, named.ref, reason)


def orphans(seen: Snapshot) -> Mapping[InstanceRef, ActionReason]:
    """Instances that this database started and no worker owns, judged by what was there before the cycle.

    None while the table of workers is empty: somebody may have emptied it.
    """
    if isinstance(seen.instances, ListingFailed) or not seen.workers:
        return {}
    owners = {worker.instance_name: worker for worker in seen.workers}
    found: dict[InstanceRef, ActionReason] = {}
    for each in seen.instances:
        stamp = Stamp.of(each.name)
        ours = each.name in owners or (stamp is not None and stamp.installation == seen.installation)
        reason = _orphaned(each, owners.get(each.name)) if ours else None
        if reason is not None:
            found[each.ref] = reason
    return found


def sweep(seen: Snapshot) -> Iterable[actions.Action]:
    """P11: only what was an orphan in an earlier listing too, and has been one for long enough."""
    if isinstance(seen.instances, ListingFailed):
        return
    owners = {worker.instance_name: worker for worker in seen.workers}
    grace = max((pool.policy.orphan_grace for pool in seen.pools), default=timedelta(0))
    for instance in seen.instances:
        since = seen.orphans.get(instance.ref)
        reason = None if since is None else _orphaned(instance, owners.get(instance.name))
        if reason is not None and since is not None and since < seen.now and seen.now - since >= grace:
            yield actions.TerminateOrphan(instance.ref, instance.name, reason)


def _orphaned(instance: Instance, owner: WorkerSnapshot | None) -> ActionReason | None:
    if owner is None or not owner.alive:
        return ActionReason(Code.UNKNOWN_INSTANCE, "it belongs to no living worker of this database")
    if owner.instance_ref is not None and instance.ref != owner.instance_ref:
        return ActionReason(Code.TWIN_INSTANCE, f"a second instance of worker {owner.id}")
    return None


def grow_volumes(seen: Snapshot) -> Iterable[actions.Action]:
    """One a cycle and pool, asked for by the worker that has the least room: the others mostly share its volume."""
    if isinstance(seen.instances, ListingFailed):
        return
    for pool in seen.pools:
        short = [each for each in seen.of(pool.id, WorkerStatus.ACTIVE) if _short(each, pool, seen)]
        if not short:
            continue
        worker = min(short, key=lambda each: (each.disk_free_gb or 0, each.id))
        free, total = worker.disk_free_gb or 0, worker.disk_total_gb or 0
        assert worker.instance_ref is not None
        text = f"{free:.0f} of {total:.0f} GB are free on its volume"
        reason = ActionReason(Code.VOLUME_FULL, text, {"free_gb": free, "total_gb": total})
        yield actions.GrowVolume(worker.id, worker.instance_ref, total, pool.policy.volume_grow_gb, reason)


def _short(worker: WorkerSnapshot, pool: PoolSnapshot, seen: Snapshot) -> bool:
    """By a report that is fresh, of a worker whose machine is ours."""
    policy, free, total = pool.policy, worker.disk_free_gb, worker.disk_total_gb
    if policy.volume_min_free_gb is None or free is None or not total or worker.instance_ref is None:
        return False
    if worker.last_heartbeat is None or seen.now - worker.last_heartbeat > policy.heartbeat_timeout:
        return False
    return free < policy.volume_min_free_gb or 100 * (1 - free / total) > policy.volume_max_used


class Kind(StrEnum):
    ORPHAN = "orphan"
    """An instance that no living worker owns: money for nothing."""
    DUPLICATE = "duplicate"
    """A second instance of one worker."""
    FOREIGN = "foreign"
    """An instance with our name that another database started, or that does not say which one did."""
    UNATTACHED = "unattached"
    """An instance that carries the name of a worker which does not know of it yet."""
    MISSING = "missing"
    """A worker whose instance the provider does not list."""


UNOWNED = (Kind.ORPHAN, Kind.DUPLICATE, Kind.FOREIGN)
"""Instances that no worker of this database runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    kind: Kind
    text: str
    worker_id: WorkerId | None = None
    instance: InstanceRef | None = None
    cost_per_hour: Decimal = Decimal(0)


def differences(seen: Snapshot) -> tuple[Difference, ...]:
    """Both ways. Empty when the provider could not be listed: that proves nothing."""
    if isinstance(seen.instances, ListingFailed):
        return ()
    owners = {worker.instance_name: worker for worker in seen.workers if worker.alive}
    lost = {action.ref: action.reason for action in recognise(seen) if isinstance(action, actions.AttachInstance)}
    unowned, found = orphans(seen), list[Difference]()
    for instance in seen.instances:
        owner = owners.get(instance.name)
        if instance.ref in lost:
            kind, text = Kind.UNATTACHED, lost[instance.ref].text
        elif instance.ref in unowned:
            kind, text = Kind.ORPHAN if owner is None else Kind.DUPLICATE, unowned[instance.ref].text
        elif owner is None and seen.workers:
            stamp, kind = Stamp.of(instance.name), Kind.FOREIGN
            text = f"{instance.name} does not say which database started it: an older version, or a person"
            if stamp is not None:
                text = f"{instance.name} was started by another database, {stamp.installation}"
        else:
            continue
        found.append(
            Difference(
                kind=kind,
                text=text,
                worker_id=owner.id if owner else None,
                instance=instance.ref,
                cost_per_hour=instance.cost_per_hour,
            )
        )
    names = {instance.name for instance in seen.instances}
    for worker in seen.workers:
        if worker.alive and worker.instance_name is not None and worker.instance_name not in names:
            listed = "no instance with its name is" if worker.instance_ref is None else "its instance is not"
            text = f"it is {worker.status}, and {listed} listed"
            found.append(Difference(kind=Kind.MISSING, text=text, worker_id=worker.id, instance=worker.instance_ref))
    return tuple(found)


def doubts(seen: Snapshot) -> str:
    """Why nothing may be concluded from what was seen; empty when something may."""
    if isinstance(seen.instances, ListingFailed):
        return f"the provider could not be listed: {seen.instances.reason}"
    if seen.doubt:
        return seen.doubt
    if seen.instances and not seen.workers:
        return (
            f"the provider has {len(seen.instances)} instances of ours and the table of workers is empty:"
            " is this the right database?"
        )
    return ""


def repairs(action: actions.Action, found: Iterable[Difference]) -> bool:
    """Whether an action of a cycle repairs one of the differences."""
    match action:
        case actions.TerminateOrphan():
            return action.ref in {each.instance for each in found if each.kind in UNOWNED}
        case actions.AttachInstance():
            return True
        case (
            actions.FailWorker()
            | actions.DrainIdleWorker()
            | actions.RequeueJob()
            | actions.EndInstance()
            | actions.ConfirmTerminated()
        ):
            return action.worker_id in {each.worker_id for each in found if each.kind is Kind.MISSING}
        case _:
            return False
