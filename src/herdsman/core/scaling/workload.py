"""A policy that counts running work too: busy workers cannot take what is queued."""

from math import ceil

from herdsman.core.policy import FleetPolicy
from herdsman.core.scaling.observation import Load, Wanted, bounded


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
