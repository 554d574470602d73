"""When a worker is taken for ready, idle, silent, stuck or lost."""

from typing import Annotated, Any, Literal

from pydantic import Field

from herdsman.settings.group import Group
from herdsman.settings.kinds import DefaultText, Kind, Seconds, SecondsOrZero, Switch, plain

PromotionPolicy = Annotated[
    Literal["pod", "heartbeat", "ready", "first_task"], Kind("pod, heartbeat, ready or first_task", plain)
]


def _idle_timeout(given: dict[str, Any]) -> float:
    """A value that was refused is missing; what follows from it no longer matters then."""
    return given.get("gpu_idle_timeout_sec", 0)


def _three_cycles(given: dict[str, Any]) -> float:
    return max(60, 3 * given.get("orchestrator_poll_sec", 0))


class HealthSettings(Group):
    """The control cycle and the times after which it steps in."""

    orchestrator_poll_sec: Seconds = Field(default=30, description="Seconds between two control cycles.")
    gpu_idle_timeout_sec: Seconds = Field(
        default=300, description="Seconds without a job after which a worker beyond the minimum is ended."
    )
    gpu_overcapacity_idle_timeout_sec: SecondsOrZero = Field(
        default=30, description="The same while there are more workers than wanted."
    )
    heartbeat_timeout_sec: Annotated[Seconds, DefaultText("the value of GPU_IDLE_TIMEOUT_SEC")] = Field(
        default_factory=_idle_timeout,
        description="Seconds without a heartbeat after which a worker is silent.",
    )
    task_stuck_timeout_sec: Seconds = Field(
        default=300, description="Seconds without progress after which a running job is stuck."
    )
    gpu_health_check_timeout_sec: Seconds = Field(
        default=120, description="Seconds after which a worker's report of its GPU memory is stale."
    )
    graceful_shutdown_timeout_sec: SecondsOrZero = Field(
        default=600, description="Seconds that a worker being ended may spend on the job it holds."
    )
    failsafe_stale_threshold_sec: Seconds = Field(
        default=7200, description="Seconds of silence after which a worker is ended whatever else is known."
    )
    error_cleanup_grace_period_sec: SecondsOrZero = Field(
        default=0,
        description="Seconds that the machine of a failed worker is kept for a look at it, while nobody needs its place.",
    )

    auto_start_worker_process: Switch = Field(
        default=True, description="Whether the worker process is started on a machine that is ready."
    )
    promotion_policy: PromotionPolicy = Field(
        default="ready", description="What makes a starting worker an active one."
    )
    spawning_timeout_sec: Seconds = Field(
        default=300, description="Seconds that a worker may take from its creation to being active."
    )
    heartbeat_promotion_threshold_sec: Annotated[
        Seconds, DefaultText("the larger of 60 and 3 times ORCHESTRATOR_POLL_SEC")
    ] = Field(
        default_factory=_three_cycles,
        description="Oldest heartbeat, in seconds, that still makes a starting worker active.",
    )
    script_running_timeout_sec: Seconds = Field(
        default=1800,
        description="Seconds within which a pod with RUNPOD_ACTIVATION must send its first heartbeat, instead of BOOT_TIMEOUT_SEC.",
    )
    startup_grace_period_sec: SecondsOrZero = Field(
        default=1200,
        description="Seconds from its creation within which a worker that beats must be ready for jobs.",
    )
    active_initializing_max_sec: Seconds = Field(
        default=1800,
        description="Seconds that a worker which PROMOTION_POLICY made active may report that it is not ready yet.",
    )
    require_gpu: Annotated[
        bool | None,
        Kind("true or false", plain),
        DefaultText("true where PROVIDER rents machines, false where workers are local"),
    ] = Field(
        default=None,
        description="Whether a worker without a GPU gets no jobs and is ended; pools that are served by hand require none.",
    )
    gpu_not_detected_timeout_sec: Seconds = Field(
        default=300,
        description="Seconds that a worker may report no GPU before it is ended, where REQUIRE_GPU holds.",
    )
    ready_not_claiming_timeout_sec: Seconds = Field(
        default=600, description="Seconds that a ready worker may leave waiting jobs unclaimed."
    )
