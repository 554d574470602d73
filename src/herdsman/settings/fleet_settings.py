"""Settings of the fleet: its size, its health, and the providers of its machines."""

from typing import Annotated, Literal

from platformdirs import user_state_path
from pydantic import Field, SecretStr

from herdsman.settings.kinds import (
    Count,
    DefaultText,
    Group,
    Kind,
    Minutes,
    Money,
    OptionalText,
    Percent,
    Positive,
    Ratio,
    Seconds,
    SecondsOrZero,
    Secret,
    SecretMap,
    Share,
    Sizes,
    Switch,
    Text,
    Texts,
    WebUrl,
    setting,
)


class ScalingSettings(Group):
    """How the fleet grows and shrinks."""

    min_active_gpus: Count = setting(2, "Workers kept even when there is nothing to do.")
    max_active_gpus: Count = setting(10, "Most workers alive at once; 0 stops all spawning.")
    tasks_per_gpu_threshold: Positive = setting(3, "More queued jobs per worker than this call for another worker.")
    scaling_policy: Text = setting(
        "threshold", "Name of the policy that sizes the fleet: threshold, workload, adaptive, or one of a plugin."
    )
    shadow_scaling_policy: Text = setting(
        "", "A second policy that is only asked, each cycle, what it would have done; empty asks none."
    )
    target_wait_sec: Seconds = setting(
        120, "Seconds that all but a few jobs should wait at most, which the policy adaptive aims at."
    )
    machines_to_keep_idle: Count = setting(0, "Idle workers that the policy workload keeps warm beyond those at work.")
    scale_up_multiplier: Ratio = setting(1.0, "When a pool grows, the number of workers wanted is multiplied by this.")
    scale_down_multiplier: Ratio = setting(
        0.9,
        "When a pool shrinks, the number of workers wanted is multiplied by this, unless it would grow again at once.",
    )
    min_scaling_interval_sec: SecondsOrZero = setting(
        45,
        "Seconds for which the policies workload and adaptive keep a size before they shrink, and workload before it grows.",
    )
    spawning_grace_period_sec: SecondsOrZero = setting(
        180, "Seconds for which a worker that starts counts as capacity to come though its machine does not run."
    )
    scale_down_grace_period_sec: SecondsOrZero = setting(
        60, "Seconds that a new worker is safe from being scaled down."
    )
    max_task_wait_minutes: Minutes = setting(
        5, "Minutes a job waits for a worker that has its model loaded before any may take it."
    )
    max_creates_per_hour: Positive = setting(
        120, "Most workers that are created within an hour, whatever becomes of them."
    )
    max_cost_per_hour_usd: Money = setting(
        None, "No worker is spawned while the fleet's machines cost this much an hour together."
    )
    budget_per_hour_usd: Money = setting(
        None, "No worker is spawned while an hour costs this much; without it there is no limit."
    )
    budget_per_day_usd: Money = setting(
        None, "No worker is spawned once a day has cost this much; without it there is no limit."
    )


class BreakerSettings(Group):
    """When failures stop the spawning of workers, or replace one."""

    max_worker_failure_rate: Share = setting(0.8, "Share of failed workers above which no more are spawned.")
    failure_window_minutes: Minutes = setting(5, "Minutes over which the failures of workers are counted.")
    min_workers_for_rate_check: Positive = setting(5, "Fewer workers than this are too few to judge by.")
    max_consecutive_task_failures: Positive = setting(3, "A worker that fails this many jobs in a row is replaced.")
    task_failure_window_minutes: Minutes = setting(30, "Minutes over which a worker's failed jobs are counted.")


class PoolSettings(Group):
    """Pools of warm workers that are asked for by name."""

    gpu_pool_min_warm: Count = setting(0, "Pools kept warm even when idle.")
    gpu_pool_max_total: Count = setting(8, "Most pools at once.")
    gpu_pool_idle_timeout_s: SecondsOrZero = setting(300, "Seconds after which an idle pool may be evicted.")
    gpu_pool_policy_period_s: Seconds = setting(
        10, "Most seconds between two control cycles while a pool that was asked for by name is there."
    )


PromotionPolicy = Annotated[
    Literal["pod", "heartbeat", "ready", "first_task"], Kind("pod, heartbeat, ready or first_task")
]


# A value that was refused is missing from `given`; what follows from it no longer matters then.


class HealthSettings(Group):
    """The control cycle and the times after which it steps in."""

    orchestrator_poll_sec: Seconds = setting(30, "Seconds between two control cycles.")
    gpu_idle_timeout_sec: Seconds = setting(
        300, "Seconds without a job after which a worker beyond the minimum is ended."
    )
    gpu_overcapacity_idle_timeout_sec: SecondsOrZero = setting(30, "The same while there are more workers than wanted.")
    heartbeat_timeout_sec: Annotated[Seconds, DefaultText("the value of GPU_IDLE_TIMEOUT_SEC")] = Field(
        default_factory=lambda given: given.get("gpu_idle_timeout_sec", 0),
        description="Seconds without a heartbeat after which a worker is silent.",
    )
    task_stuck_timeout_sec: Seconds = setting(300, "Seconds without progress after which a running job is stuck.")
    gpu_health_check_timeout_sec: Seconds = setting(
        120, "Seconds after which a worker's report of its GPU memory is stale."
    )
    graceful_shutdown_timeout_sec: SecondsOrZero = setting(
        600, "Seconds that a worker being ended may spend on the job it holds."
    )
    failsafe_stale_threshold_sec: Seconds = setting(
        7200, "Seconds of silence after which a worker is ended whatever else is known."
    )
    error_cleanup_grace_period_sec: SecondsOrZero = setting(
        0, "Seconds that the machine of a failed worker is kept for diagnosis, while nobody needs its place."
    )

    auto_start_worker_process: Switch = setting(
        True, "Whether the worker process is started on a machine that is ready."
    )
    promotion_policy: PromotionPolicy = setting("ready", "What makes a starting worker an active one.")
    spawning_timeout_sec: Seconds = setting(300, "Seconds that a worker may take from its creation to being active.")
    heartbeat_promotion_threshold_sec: Annotated[
        Seconds, DefaultText("the larger of 60 and 3 times ORCHESTRATOR_POLL_SEC")
    ] = Field(
        default_factory=lambda given: max(60, 3 * given.get("orchestrator_poll_sec", 0)),
        description="Oldest heartbeat, in seconds, that still makes a starting worker active.",
    )
    script_running_timeout_sec: Seconds = setting(
        1800,
        "Seconds within which a pod with RUNPOD_ACTIVATION must send its first heartbeat, instead of BOOT_TIMEOUT_SEC.",
    )
    startup_grace_period_sec: SecondsOrZero = setting(
        1200, "Seconds from its creation within which a worker that beats must be ready for jobs."
    )
    active_initializing_max_sec: Seconds = setting(
        1800, "Seconds that a worker which PROMOTION_POLICY made active may report that it is not ready yet."
    )
    require_gpu: Annotated[
        bool | None,
        Kind("true or false"),
        DefaultText("true where PROVIDER rents machines, false where workers are local"),
    ] = setting(
        None, "Whether a worker without a GPU gets no jobs and is ended; pools that are served by hand require none."
    )
    gpu_not_detected_timeout_sec: Seconds = setting(
        300, "Seconds that a worker may report no GPU before it is ended, where REQUIRE_GPU holds."
    )
    ready_not_claiming_timeout_sec: Seconds = setting(
        600, "Seconds that a ready worker may leave waiting jobs unclaimed."
    )


Label = Annotated[
    str | None,
    Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40),
    Kind("small letters and digits with single hyphens between them, at most 40"),
]
RunpodCloud = Annotated[Literal["SECURE", "COMMUNITY"], Kind("SECURE or COMMUNITY")]


class ProviderSettings(Group):
    """What holds for machines from every provider."""

    provider: Text = setting(
        "local", "Where workers run: local for processes on this machine, runpod, or the name of a plugin."
    )
    deployment_id: Label = setting(
        None, "Name of this installation, in the name of each machine; those of others are never touched."
    )
    provider_timeout_sec: Seconds = setting(30, "Seconds that a call to a provider may take.")
    boot_timeout_sec: Seconds = setting(600, "Seconds after which a machine without a first heartbeat is ended.")
    absence_window_sec: Seconds = setting(
        600, "Seconds that a machine must be missing from listings before it counts as gone."
    )
    orphan_grace_sec: Seconds = setting(
        60, "Seconds that a machine of ours must be listed without a worker that owns it before it is ended."
    )


class LocalSettings(Group):
    """Workers that are processes on this machine."""

    fake_gpus: Count = setting(0, "Simulated GPUs; 0 uses the real ones, one for each worker.")
    local_state_dir: Annotated[Text, DefaultText("USER_STATE_DIRECTORY/herdsman")] = Field(
        default_factory=lambda: str(user_state_path("herdsman", appauthor=False)),
        description="Directory that remembers which processes were started, and holds their logs.",
    )


class RunpodSettings(Group):
    """Machines rented from Runpod."""

    runpod_api_key: Secret = setting(None, "Key of the Runpod account.")
    runpod_api_url: WebUrl = setting("https://api.runpod.io/v2", "Address of Runpod's REST API.")
    runpod_gpu_type: OptionalText = setting(None, "Kind of GPU that is rented.")
    runpod_gpu_types: Texts = setting((), "Kinds of GPU to ask for, in this order; in place of RUNPOD_GPU_TYPE.")
    runpod_cloud: RunpodCloud = setting("SECURE", "Runpod's own machines, or others' too.")
    runpod_data_centers: Texts = setting((), "Data centers that a pod may be in; without them, all.")
    runpod_worker_image: OptionalText = setting(None, "Container image that a pod runs.")
    runpod_template_id: OptionalText = setting(None, "Template that a pod is made from.")
    runpod_name_prefix: Text = setting("gpu", "What the name of a pod begins with.")
    runpod_env_vars: SecretMap = Field(
        default_factory=dict[str, SecretStr], description="More variables for the environment of a pod."
    )
    runpod_ports: Texts = setting((), "Ports of a pod that are opened, such as 22/tcp or 8188/http.")
    runpod_activation: OptionalText = setting(
        None, "Shell commands, one on each line, to run in the volume before the worker starts."
    )

    runpod_storage_name: OptionalText = setting(None, "Name of the network volume to attach.")
    runpod_storage_volumes: Texts = setting((), "Network volumes to try, in this order.")
    runpod_volume_mount_path: Text = setting("/workspace", "Where the volume is mounted in a pod.")
    runpod_disk_size_gb: Positive = setting(200, "Size of a pod's volume in gigabytes.")
    runpod_container_disk_gb: Positive = setting(200, "Size of a pod's own disk in gigabytes.")
    runpod_min_vcpu_count: Positive = setting(8, "Fewest virtual processors of a pod.")
    runpod_min_memory_gb: Positive = setting(32, "Least memory of a pod in gigabytes.")
    runpod_ram_tiers: Sizes = setting((72, 60, 48, 32, 16), "Sizes of memory in gigabytes to ask for, in this order.")

    storage_min_free_gb: Count = setting(
        50, "A network volume on which workers have fewer gigabytes free than this is grown."
    )
    storage_max_percent_used: Percent = setting(85, "A network volume that is fuller than this percentage is grown.")
    storage_expansion_increment_gb: Positive = setting(
        50, "Gigabytes by which a network volume is grown, once it is seen to be full."
    )
