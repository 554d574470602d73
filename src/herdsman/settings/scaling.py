"""How many workers there are: the default pool, other pools, and when to stop spawning."""

from pydantic import Field

from herdsman.settings.group import Group
from herdsman.settings.kinds import Count, Minutes, Money, Positive, Ratio, Seconds, SecondsOrZero, Share
from herdsman.settings.texts import Text


class ScalingSettings(Group):
    """How the fleet grows and shrinks."""

    min_active_gpus: Count = Field(default=2, description="Workers kept even when there is nothing to do.")
    max_active_gpus: Count = Field(
        default=10, description="Most workers alive at once; 0 stops all spawning."
    )
    tasks_per_gpu_threshold: Positive = Field(
        default=3, description="More queued jobs per worker than this call for another worker."
    )
    scaling_policy: Text = Field(
        default="threshold",
        description="Name of the policy that sizes the fleet: threshold, workload, adaptive, or one of a plugin.",
    )
    shadow_scaling_policy: Text = Field(
        default="",
        description="A second policy that is only asked, each cycle, what it would have done; empty asks none.",
    )
    target_wait_sec: Seconds = Field(
        default=120,
        description="Seconds that all but a few jobs should wait at most, which the policy adaptive aims at.",
    )
    machines_to_keep_idle: Count = Field(
        default=0, description="Idle workers that the policy workload keeps warm beyond those at work."
    )
    scale_up_multiplier: Ratio = Field(
        default=1.0, description="When a pool grows, the number of workers wanted is multiplied by this."
    )
    scale_down_multiplier: Ratio = Field(
        default=0.9,
        description="When a pool shrinks, the number of workers wanted is multiplied by this, unless it would grow again at once.",
    )
    min_scaling_interval_sec: SecondsOrZero = Field(
        default=45,
        description="Seconds for which the policies workload and adaptive keep a size before they shrink, and workload before it grows.",
    )
    spawning_grace_period_sec: SecondsOrZero = Field(
        default=180,
        description="Seconds for which a worker that starts counts as capacity to come though its machine does not run.",
    )
    scale_down_grace_period_sec: SecondsOrZero = Field(
        default=60, description="Seconds that a new worker is safe from being scaled down."
    )
    max_task_wait_minutes: Minutes = Field(
        default=5,
        description="Minutes a job waits for a worker that has its model loaded before any may take it.",
    )
    max_creates_per_hour: Positive = Field(
        default=120, description="Most workers that are created within an hour, whatever becomes of them."
    )
    max_cost_per_hour_usd: Money = Field(
        default=None,
        description="No worker is spawned while the fleet's machines cost this much an hour together.",
    )
    budget_per_hour_usd: Money = Field(
        default=None,
        description="No worker is spawned while an hour costs this much; without it there is no limit.",
    )
    budget_per_day_usd: Money = Field(
        default=None,
        description="No worker is spawned once a day has cost this much; without it there is no limit.",
    )


class BreakerSettings(Group):
    """When failures stop the spawning of workers, or replace one."""

    max_worker_failure_rate: Share = Field(
        default=0.8, description="Share of failed workers above which no more are spawned."
    )
    failure_window_minutes: Minutes = Field(
        default=5, description="Minutes over which the failures of workers are counted."
    )
    min_workers_for_rate_check: Positive = Field(
        default=5, description="Fewer workers than this are too few to judge by."
    )
    max_consecutive_task_failures: Positive = Field(
        default=3, description="A worker that fails this many jobs in a row is replaced."
    )
    task_failure_window_minutes: Minutes = Field(
        default=30, description="Minutes over which a worker's failed jobs are counted."
    )


class PoolSettings(Group):
    """Pools of warm workers that are asked for by name."""

    gpu_pool_min_warm: Count = Field(default=0, description="Pools kept warm even when idle.")
    gpu_pool_max_total: Count = Field(default=8, description="Most pools at once.")
    gpu_pool_idle_timeout_s: SecondsOrZero = Field(
        default=300, description="Seconds after which an idle pool may be evicted."
    )
    gpu_pool_policy_period_s: Seconds = Field(
        default=10,
        description="Most seconds between two control cycles while a pool that was asked for by name is there.",
    )
