"""The settings as the rules that the control loop lives by."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from herdsman.core.model import DEFAULT_POOL, PoolId
from herdsman.core.policy import FleetPolicy, Promotion
from herdsman.core.pools import PoolLimits
from herdsman.settings.model import Settings


def fleet_policies(settings: Settings) -> Mapping[PoolId, FleetPolicy]:
    """The pool `default`, and those that the configuration file names."""
    named = {PoolId(name): fleet_policy(pool) for name, pool in settings.by_pool.items()}
    return {DEFAULT_POOL: fleet_policy(settings), **named}


def pool_limits(settings: Settings) -> PoolLimits:
    """For the pools that people ask for by name, beside those of the settings."""
    pools = settings.pools
    return PoolLimits(
        reserved=frozenset(fleet_policies(settings)),
        most=pools.gpu_pool_max_total,
        min_warm=pools.gpu_pool_min_warm,
        idle_timeout=_span(pools.gpu_pool_idle_timeout_s),
    )


def fleet_policy(settings: Settings) -> FleetPolicy:
    scaling, health, providers, breaker = (
        settings.scaling,
        settings.health,
        settings.providers,
        settings.breaker,
    )
    return FleetPolicy(
        min_workers=scaling.min_active_gpus,
        max_workers=scaling.max_active_gpus,
        jobs_per_worker=scaling.tasks_per_gpu_threshold,
        scaling=scaling.scaling_policy,
        shadow=scaling.shadow_scaling_policy,
        promotion=Promotion(health.promotion_policy),
        require_gpu=providers.provider != "local" if health.require_gpu is None else health.require_gpu,
        idle_workers=scaling.machines_to_keep_idle,
        grow_by=scaling.scale_up_multiplier,
        shrink_by=scaling.scale_down_multiplier,
        spawning_grace=_span(scaling.spawning_grace_period_sec),
        min_scaling_interval=_span(scaling.min_scaling_interval_sec),
        target_wait=_span(scaling.target_wait_sec),
        look_every=_span(health.orchestrator_poll_sec),
        idle_timeout=_span(health.gpu_idle_timeout_sec),
        overcapacity_idle_timeout=_span(health.gpu_overcapacity_idle_timeout_sec),
        scale_down_grace=_span(scaling.scale_down_grace_period_sec),
        promoting_beat=_span(health.heartbeat_promotion_threshold_sec),
        heartbeat_timeout=_span(health.heartbeat_timeout_sec),
        stuck_timeout=_span(health.task_stuck_timeout_sec),
        spawning_timeout=_span(health.spawning_timeout_sec),
        boot_timeout=_span(providers.boot_timeout_sec),
        script_timeout=_script_timeout(settings),
        preparing_timeout=_span(health.active_initializing_max_sec),
        ready_timeout=_span(health.startup_grace_period_sec),
        gpu_timeout=_span(health.gpu_not_detected_timeout_sec),
        not_claiming_timeout=_span(health.ready_not_claiming_timeout_sec),
        vram_stale_after=_span(health.gpu_health_check_timeout_sec),
        failsafe=_span(health.failsafe_stale_threshold_sec),
        shutdown_grace=_span(health.graceful_shutdown_timeout_sec),
        error_grace=_span(health.error_cleanup_grace_period_sec),
        absence_window=_span(providers.absence_window_sec),
        volume_min_free_gb=settings.runpod.storage_min_free_gb if _has_volumes(settings) else None,
        volume_max_used=settings.runpod.storage_max_percent_used,
        volume_grow_gb=settings.runpod.storage_expansion_increment_gb,
        orphan_grace=_span(providers.orphan_grace_sec),
        max_failure_rate=breaker.max_worker_failure_rate,
        min_starts_to_judge=breaker.min_workers_for_rate_check,
        failure_window=timedelta(minutes=breaker.failure_window_minutes),
        max_failed_in_a_row=breaker.max_consecutive_task_failures,
        job_failure_window=timedelta(minutes=breaker.task_failure_window_minutes),
        max_creates_per_hour=scaling.max_creates_per_hour,
        max_cost_per_hour=_money(scaling.max_cost_per_hour_usd),
        budget_per_hour=_money(scaling.budget_per_hour_usd),
        budget_per_day=_money(scaling.budget_per_day_usd),
    )


def _has_volumes(settings: Settings) -> bool:
    """Network volumes can be grown; the disk of a pod cannot."""
    named = settings.runpod.runpod_storage_volumes or settings.runpod.runpod_storage_name
    return settings.providers.provider == "runpod" and bool(named)


def _script_timeout(settings: Settings) -> timedelta | None:
    """Only a pod that is given commands of its own has a script to wait for."""
    if settings.providers.provider != "runpod" or not settings.runpod.runpod_activation:
        return None
    return _span(settings.health.script_running_timeout_sec)


def _span(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _money(amount: float | Decimal | None) -> Decimal | None:
    return None if amount is None else Decimal(str(amount))
