"""The rhythm of a world: as in production, but for what would only make it longer."""

from dataclasses import dataclass, field
from datetime import timedelta

from herdsman.control.leadership import LeaderPolicy
from herdsman.core.model import JobPolicy
from herdsman.core.policy import FleetPolicy
from herdsman.core.retry import RetryPolicy

MOST_WORKERS = 4


def _s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    heartbeat: timedelta = _s(5)
    self_fence: timedelta = _s(16)
    poll: timedelta = _s(2.5)
    """Between two looks for a job."""
    drain_grace: timedelta = _s(30)
    stop_grace: timedelta = _s(5)
    unowned: timedelta = _s(120)
    sweep: timedelta = _s(5)
    staging: timedelta = _s(5)
    reconcile: timedelta = _s(6)
    listen: timedelta = _s(5)
    leader: LeaderPolicy = field(
        default_factory=lambda: LeaderPolicy(ttl=_s(20), renew=_s(5), follow=_s(4), margin=_s(1))
    )
    jobs: JobPolicy = field(
        default_factory=lambda: JobPolicy(
            claim_ttl=_s(20), cancel_grace=_s(10), retry=RetryPolicy(base=_s(2), cap=_s(10))
        )
    )
    fleet: FleetPolicy = field(
        default_factory=lambda: FleetPolicy(
            min_workers=0,
            max_workers=MOST_WORKERS,
            jobs_per_worker=3,
            min_scaling_interval=_s(5),
            idle_timeout=_s(12),
            overcapacity_idle_timeout=_s(8),
            scale_down_grace=_s(8),
            promoting_beat=_s(15),
            heartbeat_timeout=_s(30),
            stuck_timeout=_s(120),
            spawning_timeout=_s(60),
            boot_timeout=_s(60),
            ready_timeout=_s(60),
            not_claiming_timeout=_s(90),
            failsafe=_s(600),
            shutdown_grace=_s(40),
            absence_window=_s(60),
            end_again_after=_s(10),
            confirm_window=_s(8),
            first_wait=_s(3),
            longest_wait=_s(12),
            failure_window=_s(30),
        )
    )
