"""Instances and workers are matched by name: a lost answer is found again, and what belongs to nobody is ended."""

from collections.abc import Iterable

from herdsman.core.actions import Action, AttachInstance, EndStray
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenWorker, Snapshot, Unseen
from herdsman.core.instances import Instance


def recognise(seen: Snapshot) -> Iterable[Action]:
    """A worker whose creation had an unknown outcome gets the instance that carries its name."""
    if isinstance(seen.instances, Unseen):
        return
    lost = [each for each in seen.workers if each.instance_ref is None and each.instance_name and each.alive]
    found = _oldest(seen.instances) if lost else {}
    for worker in lost:
        named = found.get(worker.instance_name or "")
        if named is not None:
            why = Finding(Code.FOUND_BY_NAME, f"found by its name {named.name}")
            yield AttachInstance(worker.id, named.ref, why)


def sweep(seen: Snapshot) -> Iterable[Action]:
    """Nothing is swept while the table is empty: that looks the same as a table that is not ours."""
    if isinstance(seen.instances, Unseen) or not seen.workers:
        return
    owners = {worker.instance_name: worker for worker in seen.workers}
    for instance in seen.instances:
        why = _stray(instance, owners.get(instance.name))
        if why is not None:
            yield EndStray(instance.ref, instance.name, why)


def _stray(instance: Instance, owner: SeenWorker | None) -> Finding | None:
    if owner is None or not owner.alive:
        return Finding(Code.UNKNOWN_INSTANCE, "it carries our name and belongs to no living worker")
    if owner.instance_ref is not None and instance.ref != owner.instance_ref:
        return Finding(Code.TWIN_INSTANCE, f"a second instance of worker {owner.id}")
    return None


def _oldest(instances: Iterable[Instance]) -> dict[str, Instance]:
    """Of those that share a name, the same one each time."""
    return {each.name: each for each in sorted(instances, key=lambda each: each.ref, reverse=True)}
