"""Instances and workers are matched by name: a lost answer is found again, and what belongs to nobody is ended."""

from collections.abc import Iterable, Iterator, Sequence

from herdsman.core.actions import Action, AttachInstance, EndStray
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenWorker, Snapshot, Unseen
from herdsman.core.instances import Instance


def recognise(seen: Snapshot) -> Iterable[Action]:
    """A worker whose creation had an unknown outcome gets the instance that carries its name."""
    if isinstance(seen.instances, Unseen):
        return
    by_name = _by_name(seen.instances)
    for worker in seen.workers:
        named = by_name.get(worker.instance_name or "")
        if named and worker.instance_ref is None and worker.alive:
            oldest = named[0]
            yield AttachInstance(
                worker.id, oldest.ref, Finding(Code.FOUND_BY_NAME, f"found by its name {oldest.name}")
            )


def sweep(seen: Snapshot) -> Iterable[Action]:
    """Nothing is swept while the table is empty: that looks the same as a table that is not ours."""
    if isinstance(seen.instances, Unseen) or not seen.workers:
        return
    owners = {worker.instance_name: worker for worker in seen.workers}
    for name, instances in _by_name(seen.instances).items():
        yield from _strays(instances, owners.get(name))


def _strays(instances: Sequence[Instance], owner: SeenWorker | None) -> Iterator[Action]:
    for instance in instances:
        if owner is None or not owner.alive:
            why = Finding(Code.UNKNOWN_INSTANCE, "it carries our name and belongs to no living worker")
            yield EndStray(instance.ref, instance.name, why)
        elif owner.instance_ref is not None and instance.ref != owner.instance_ref:
            why = Finding(Code.TWIN_INSTANCE, f"a second instance of worker {owner.id}")
            yield EndStray(instance.ref, instance.name, why)


def _by_name(instances: Iterable[Instance]) -> dict[str, list[Instance]]:
    found: dict[str, list[Instance]] = {}
    for instance in sorted(instances, key=lambda each: each.ref):
        found.setdefault(instance.name, []).append(instance)
    return found
