"""The default policy: grow when more jobs are queued per worker than the threshold."""

from math import ceil

from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling.observation import Load, Wanted, bounded

_USUAL = FleetPolicy()


def should_scale_up(queued_count: int, active_count: int, policy: FleetPolicy = _USUAL) -> bool:
    """Are more jobs queued than the workers there should have to take?"""
    if active_count == 0:
        return queued_count > 0
    return queued_count / active_count > policy.jobs_per_worker


def calculate_workers_needed(queued_count: int, active_count: int, policy: FleetPolicy = _USUAL) -> int:
    """How many workers to add: enough for the queue, at least the floor, never past the ceiling."""
    return max(0, bounded(_for_queue(queued_count, policy), policy) - active_count)


def threshold(load: Load, policy: FleetPolicy) -> Wanted:
    """The floor is kept whatever the queue; the queue asks for more only past the threshold."""
    grows = should_scale_up(load.queued, load.capacity, policy)
    added = calculate_workers_needed(load.queued, load.capacity, policy) if grows else 0
    keep = bounded(max(_for_queue(load.queued, policy), load.busy), policy)
    terms = {"queued": load.queued, "capacity": load.capacity, "threshold": policy.jobs_per_worker}
    return Wanted(max(load.capacity + added, bounded(0, policy)), keep, terms)


def _for_queue(queued: int, policy: FleetPolicy) -> int:
    return ceil(queued / policy.jobs_per_worker)


def workload(load: Load, policy: FleetPolicy) -> Wanted:
    """Busy workers, workers for the queue, and a warm buffer; the size is then kept for a while."""
    for_queue = ceil(load.queued / policy.jobs_per_worker)
    wanted = bounded(load.busy + max(for_queue, policy.idle_workers), policy)
    settled = load.since_scaled is None or load.since_scaled >= policy.min_scaling_interval
    terms = {
        "queued": load.queued,
        "busy": load.busy,
        "for_queue": for_queue,
        "idle_buffer": policy.idle_workers,
        "settled": "yes" if settled else "no",
    }
    floor = bounded(0, policy)
    if not settled:
        return Wanted(floor, max(load.capacity, wanted), terms)
    return Wanted(max(wanted, floor), wanted, terms)
