"""A network volume that fills up is grown in time; a worker whose disk is full only takes no jobs meanwhile."""

from collections.abc import Iterable

from herdsman.core.actions import Action, GrowVolume
from herdsman.core.findings import Code, Finding
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.states import WorkerState


def grow_volumes(seen: Snapshot) -> Iterable[Action]:
    """One a cycle and pool, asked for by the worker that has the least room: the others mostly share its volume."""
    if isinstance(seen.instances, Unseen):
        return
    for pool in seen.pools:
        short = [each for each in seen.of(pool.id, WorkerState.ACTIVE) if _short(each, pool, seen)]
        if not short:
            continue
        worker = min(short, key=lambda each: (each.disk_free_gb or 0, each.id))
        free, total = worker.disk_free_gb or 0, worker.disk_total_gb or 0
        assert worker.instance_ref is not None
        text = f"{free:.0f} of {total:.0f} GB are free on its volume"
        why = Finding(Code.VOLUME_FULL, text, {"free_gb": free, "total_gb": total})
        yield GrowVolume(worker.id, worker.instance_ref, total, pool.policy.volume_grow_gb, why)


def _short(worker: SeenWorker, pool: SeenPool, seen: Snapshot) -> bool:
    """By a report that is fresh, of a worker whose machine is ours."""
    policy, free, total = pool.policy, worker.disk_free_gb, worker.disk_total_gb
    if policy.volume_min_free_gb is None or free is None or not total or worker.instance_ref is None:
        return False
    if worker.last_heartbeat is None or seen.now - worker.last_heartbeat > policy.heartbeat_timeout:
        return False
    return free < policy.volume_min_free_gb or 100 * (1 - free / total) > policy.volume_max_used
