"""Intervals and timeouts of a simulation: in proportion to those of production, only shorter."""

from dataclasses import dataclass
from datetime import timedelta

from herdsman.fleet.leader import LeaderPolicy
from herdsman.fleet.model import FleetPolicy
from herdsman.jobs.model import JobPolicy, RetryPolicy
from herdsman.server.replica import LoopIntervals

MOST_WORKERS = 4
LOOPS = LoopIntervals(
    poll=timedelta(seconds=6),
    follow=timedelta(seconds=4),
    sweep=timedelta(seconds=7),
    staging=timedelta(seconds=7),
    inbox=timedelta(seconds=6),
)
LEADER = LeaderPolicy(
    ttl=timedelta(seconds=20),
    renew=timedelta(seconds=5),
    follow=timedelta(seconds=4),
    margin=timedelta(seconds=1),
    hold=timedelta(seconds=90),
)
JOBS = JobPolicy(
    claim_ttl=timedelta(seconds=20),
    cancel_grace=timedelta(seconds=10),
    retry=RetryPolicy(base=timedelta(seconds=2), cap=timedelta(seconds=10)),
)
FLEET = FleetPolicy(
    min_workers=0,
    max_workers=MOST_WORKERS,
    jobs_per_worker=2,
    min_scaling_interval=timedelta(seconds=5),
    idle_timeout=timedelta(seconds=12),
    overcapacity_idle_timeout=timedelta(seconds=8),
    scale_down_grace=timedelta(seconds=8),
    promoting_beat=timedelta(seconds=15),
    heartbeat_timeout=timedelta(seconds=45),
    stuck_timeout=timedelta(seconds=120),
    spawning_timeout=timedelta(seconds=75),
    boot_timeout=timedelta(seconds=90),
    ready_timeout=timedelta(seconds=90),
    not_claiming_timeout=timedelta(seconds=90),
    failsafe=timedelta(seconds=600),
    shutdown_grace=timedelta(seconds=40),
    absence_window=timedelta(seconds=90),
    end_again_after=timedelta(seconds=10),
    confirm_window=timedelta(seconds=8),
    first_wait=timedelta(seconds=3),
    longest_wait=timedelta(seconds=12),
    failure_window=timedelta(seconds=30),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    heartbeat: timedelta = timedelta(seconds=5)
    self_fence: timedelta = timedelta(seconds=16)
    poll: timedelta = timedelta(seconds=4)
    """Between two looks for a job."""
    drain_grace: timedelta = timedelta(seconds=30)
    stop_grace: timedelta = timedelta(seconds=5)
    look: timedelta = timedelta(seconds=1)
    """How often a worker looks after what it runs."""
    unowned: timedelta = timedelta(seconds=120)
    loops: LoopIntervals = LOOPS
    leader: LeaderPolicy = LEADER
    jobs: JobPolicy = JOBS
    fleet: FleetPolicy = FLEET
