"""The settings, section by section: the fleet and its providers, the control plane, and where its state lives."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import unquote, urlsplit

from platformdirs import user_data_path, user_state_path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

_MOST = 1_000_000_000
_TEN_YEARS_SEC = 315_360_000


def plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Kind:
    allowed: str
    """Completes "NAME must be ..."."""
    shown: Callable[[object], object] = plain
    """The value as anyone may see it, in a form that JSON can hold."""
    secret: bool = False
    """It may also be given as `NAME_FILE`, the path of a file that holds it."""


@dataclass(frozen=True, slots=True)
class DefaultText:
    """Says in words what the default is, where that depends on the machine or on another setting."""

    text: str


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true is not a number")  # noqa: TRY004  pydantic collects a ValueError only
    return value


_NUMBER = BeforeValidator(_no_switch)

Count = Annotated[int, _NUMBER, Field(ge=0, le=_MOST), Kind("a whole number from 0 to 1000000000")]
Positive = Annotated[int, _NUMBER, Field(ge=1, le=_MOST), Kind("a whole number from 1 to 1000000000")]
Port = Annotated[int, _NUMBER, Field(ge=0, le=65_535), Kind("a port from 0 to 65535")]
Ratio = Annotated[float, _NUMBER, Field(gt=0, le=_MOST), Kind("a number above 0, up to 1000000000")]
Share = Annotated[float, _NUMBER, Field(ge=0, le=1), Kind("a number from 0 to 1")]
Percent = Annotated[float, _NUMBER, Field(ge=0, le=100), Kind("a number from 0 to 100")]
Seconds = Annotated[
    float, _NUMBER, Field(gt=0, le=_TEN_YEARS_SEC), Kind("a number of seconds above 0, up to ten years")
]
SecondsOrZero = Annotated[
    float, _NUMBER, Field(ge=0, le=_TEN_YEARS_SEC), Kind("a number of seconds from 0 to ten years")
]
Milliseconds = Annotated[
    int, _NUMBER, Field(ge=1, le=_MOST), Kind("a whole number of milliseconds from 1 to 1000000000")
]
Minutes = Annotated[
    float, _NUMBER, Field(gt=0, le=_TEN_YEARS_SEC / 60), Kind("a number of minutes above 0, up to ten years")
]
Days = Annotated[int, _NUMBER, Field(ge=0, le=36_500), Kind("a whole number of days, from 0 (for ever) to 36500")]
DaysOfAWeek = Annotated[int, _NUMBER, Field(ge=0, le=7), Kind("a whole number of days from 0 to 7")]
Money = Annotated[float | None, _NUMBER, Field(ge=0, le=_MOST), Kind("an amount of US dollars from 0 to 1000000000")]
Switch = Annotated[bool, Kind("true or false")]


HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_SECRET_PARAMETER = re.compile(r"(pass|pwd|secret|token|key)[^=]*=", re.IGNORECASE)

DRIVERS = {
    "sqlite": ("sqlite",),
    "postgresql+psycopg": ("postgres", "postgresql", "postgresql+psycopg"),
    "mysql+pymysql": ("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"),
}


def default_database_url() -> str:
    return f"sqlite:///{user_data_path('herdsman', appauthor=False) / 'herdsman.db'}"


def database_url(text: str) -> str:
    """The URL with the driver we use; `ValueError` for a database that we cannot run on."""
    scheme, separator, rest = text.strip().partition("://")
    driver = next((driver for driver, names in DRIVERS.items() if scheme.lower() in names), None)
    if driver is None or not separator:
        raise ValueError("unsupported database")
    if driver == "sqlite" and not rest.lstrip("/"):
        raise ValueError("no file")
    return f"{driver}://{rest}"


def only_from_here(url: str) -> bool:
    """Whether another machine that calls it reaches itself, or nobody."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def hide_password(url: str) -> str:
    """The URL with every password replaced; a text that is no URL is hidden as a whole.

    A password that nobody escaped may hold any character, so all from the first colon to the last `@` is
    taken for it: a host is hidden too often rather than a password shown once.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return HIDDEN
    user, at, place = url[scheme.end() :].rpartition("@")
    name, colon, _ = user.partition(":")
    path, mark, query = place.partition("?")
    pairs = (
        f"{pair.partition('=')[0]}={HIDDEN}" if _SECRET_PARAMETER.search(unquote(pair)) else pair
        for pair in query.split("&")
    )
    return f"{scheme[0]}{name}{colon}{HIDDEN if colon else ''}{at}{path}{mark}{'&'.join(pairs)}"


def _hidden(value: object) -> object:
    return "set (hidden)" if value else "not set"


def _url(value: object) -> object:
    if value is None:
        return None
    return hide_password(value.get_secret_value() if isinstance(value, SecretStr) else str(value))


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _redis(value: object) -> object:
    if isinstance(value, str) and not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("unsupported server")
    return value


def _callable(value: str | None) -> str | None:
    """One listens on 0.0.0.0; nobody can be found there."""
    if value is not None and urlsplit(value).hostname in ("0.0.0.0", "::"):  # noqa: S104
        raise ValueError("no address of anybody")
    return value


Text = Annotated[str, Field(min_length=1, max_length=4096), Kind("a text")]
OptionalText = Annotated[str | None, Field(min_length=1, max_length=4096), Kind("a text")]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split), Kind("texts separated by commas")]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...],
    BeforeValidator(_split),
    Kind("whole numbers from 1 to 1000000, separated by commas"),
]
Level = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    BeforeValidator(lower),
    Kind("debug, info, warning, error or critical"),
]

Secret = Annotated[SecretStr | None, Kind("a text", _hidden, secret=True)]
SecretMap = Annotated[
    Mapping[str, SecretStr],
    BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value),
    Kind('a JSON object of texts, such as {"NAME": "value"}', _hidden, secret=True),
]
DatabaseUrl = Annotated[
    SecretStr,
    BeforeValidator(lambda value: database_url(value) if isinstance(value, str) else value),
    Kind(
        "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME, mysql://USER:PASSWORD@HOST/NAME"
        " or mariadb://USER:PASSWORD@HOST/NAME",
        _url,
        secret=True,
    ),
]
WebUrl = Annotated[
    str | None,
    Field(pattern=r"^https?://[^/\s]+", repr=False),  # it may hold a password
    AfterValidator(_callable),
    Kind("a URL that begins with https:// or http://, of an address that can be called (not 0.0.0.0)", _url),
]
RedisUrl = Annotated[
    SecretStr | None,
    BeforeValidator(_redis),
    Kind("redis://USER:PASSWORD@HOST/NUMBER, rediss://... or unix://PATH", _url, secret=True),
]


class Group(BaseModel):
    """Settings on one subject. A field's name in capitals is the variable that a person types.

    A plain model rather than a `BaseSettings`, so that building one never looks at the environment:
    `load_settings` alone does.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, defer_build=True
    )


def setting(default: object, description: str) -> Any:
    return Field(default=default, description=description)


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


if TYPE_CHECKING:
    from herdsman.jobs.model import JobPolicy
    from herdsman.leases.rules import LeasePolicy

LogFormat = Annotated[Literal["auto", "json", "text"], BeforeValidator(lower), Kind("auto, json or text")]


class LeaderSettings(Group):
    """Which replica of the control plane leads."""

    leader_renew_sec: Seconds = setting(2, "Seconds between two renewals by the leader.")
    leader_ttl_sec: Seconds = setting(10, "Seconds after its last renewal that a leader still leads.")
    outage_grace_sec: SecondsOrZero = setting(
        1800, "Seconds that workers may go on with their jobs while the database is away, if one replica runs."
    )
    gpu_orchestrator_leader_loop_s: Seconds = setting(
        2, "Seconds between two tries of a follower to become the leader."
    )
    gpu_orchestrator_leader_lock: Text = setting(
        "gpu_orchestrator_leader", "Name of the advisory lock that the leader holds."
    )


class ApiSettings(Group):
    """How the control plane is reached and watched."""

    api_host: Text = setting("127.0.0.1", "Address that the API listens on.")
    api_port: Port = setting(8765, "Port that the API listens on; 0 takes any that is free.")
    api_url: WebUrl = setting(None, "Where workers and the command line find the API; without it, on this machine.")
    api_token: Secret = setting(None, "Token that the command line shows to the API.")
    api_allowed_hosts: Texts = setting((), "Names, besides those of this machine, by which the API may be called.")
    api_tls_certificate: OptionalText = setting(None, "File with the certificate, if the API speaks TLS itself.")
    api_tls_key: OptionalText = setting(None, "File with the key of that certificate.")
    api_behind_proxy: Switch = setting(
        False, "Whether a proxy in front speaks TLS; without one, plain HTTP stays on this machine."
    )
    api_proxies: Texts = setting((), "Addresses of proxies whose word on the client's address is taken.")
    api_max_body_bytes: Positive = setting(
        1_114_112, "Largest body of a request; those about many jobs may have 16 MiB."
    )
    api_max_streams: Positive = setting(1000, "Most event streams that are open at a time on one replica.")
    api_max_streams_per_token: Positive = setting(50, "Most event streams that one token may have open on one replica.")
    api_max_streams_per_address: Positive = setting(
        200, "Most event streams that one address may have open on one replica."
    )
    token_pepper: Secret = setting(
        None, "Key that tokens are hashed with, the same for all replicas; without it, one in a file."
    )
    worker_token_ttl_sec: Seconds = setting(86_400, "Life, in seconds, of a worker's token; its heartbeats renew it.")
    bootstrap_token_ttl_sec: Seconds = setting(1800, "Seconds within which a new machine must register its worker.")
    admin_api_key: Secret = setting(None, "Key that gives its bearer the role of an admin.")
    safe_mode: Switch = setting(False, "Whether everything is refused that would change something.")
    strict_model_store: Switch = setting(
        False, "Whether a job is refused whose model no open pool names and no worker has loaded."
    )
    metrics_pushgateway_url: WebUrl = setting(
        None,
        "Prometheus push gateway that gets the metrics as well, with each cycle; each replica on a machine needs its own ORCHESTRATOR_INSTANCE_ID.",
    )


class LogSettings(Group):
    """What is logged, how, and where to."""

    log_level: Level = setting("info", "Least important level that is logged.")
    log_format: LogFormat = setting("auto", "Form of a log line; auto is text on a terminal and json elsewhere.")
    log_file: OptionalText = setting(None, "File that gets the log lines as well.")
    enable_db_logging: Switch = setting(False, "Whether log lines are stored in the database too.")
    db_logging_required: Switch = setting(False, "Whether a start is refused when log lines cannot be stored.")
    db_log_level: Level = setting("info", "Least important level that is stored.")
    db_log_batch_size: Positive = setting(50, "Log lines that are stored at once.")
    db_log_flush_interval: Seconds = setting(5, "Longest time, in seconds, before lines are stored.")
    orchestrator_instance_id: OptionalText = setting(
        None, "Name of this replica in logs and at the push gateway; without it, that of its machine."
    )


class DatabaseSettings(Group):
    """The database that holds the truth."""

    database_url: Annotated[DatabaseUrl, DefaultText("sqlite:///USER_DATA_DIRECTORY/herdsman/herdsman.db")] = Field(
        default_factory=lambda: SecretStr(default_database_url()),
        description="Database: SQLite, PostgreSQL or MariaDB.",
    )
    sql_pool_size: Positive = setting(10, "Most connections to the database per process.")
    sql_timeout_sec: Seconds = setting(10, "Seconds that a statement may take.")
    sql_prepare: Switch = setting(
        True, "Whether statements are prepared on PostgreSQL; behind a pooler, which is recognised, none are."
    )
    sql_poll_sec: Seconds = setting(1, "Seconds between two looks of the server for new jobs in the database.")


class StreamSettings(Group):
    """Redis Streams, which only hint at jobs that the database holds."""

    redis_url: RedisUrl = setting(None, "Redis server; without it the database is polled.")
    orch_stream_prefix: Text = setting("stream:orchestrator", "What the name of a stream begins with.")
    orch_claim_idle_ms: Milliseconds = setting(
        60_000, "Milliseconds after which an unacknowledged entry may be taken over."
    )
    orch_reclaim_interval_s: Seconds = setting(30, "Seconds between two looks for entries to take over.")
    stream_resync_sec: Seconds = setting(10, "Seconds between two comparisons of the streams with the database.")
    orch_ingest: Switch = setting(False, "Whether jobs that are added to the ingest stream by hand are accepted.")
    orch_ingest_agent: Text = setting("ingest", "Agent for whom jobs of the ingest stream run, whatever they say.")


class ResultSettings(Group):
    """Where the files are kept that jobs make."""

    result_store: Annotated[OptionalText, DefaultText("the directory results inside LOCAL_STATE_DIR")] = setting(
        None, "Directory for the files of jobs, or s3://BUCKET/PREFIX if workers are on other machines."
    )
    result_max_file_mb: Positive = setting(1024, "Largest file of a job, in MB.")
    result_max_job_mb: Positive = setting(4096, "Most that all files of a job have, in MB.")
    result_allow_hosts: Texts = setting(
        (), "Hosts, as NAME or NAME:PORT, that jobs may name files on though they are not public."
    )
    result_s3_endpoint: WebUrl = setting(None, "URL of an S3-compatible server; without it, that of AWS.")
    result_s3_region: OptionalText = setting(None, "Region of the bucket.")
    result_s3_key_id: OptionalText = setting(
        None, "Id of the key to the bucket; without it, the machine's own role is used."
    )
    result_s3_secret: Secret = setting(None, "Secret of the key to the bucket.")


class JobSettings(Group):
    """Claims, retries, limits and retention of jobs."""

    claim_ttl_sec: Seconds = setting(30, "Seconds after its last heartbeat that a worker keeps the right to its job.")
    sweep_interval_sec: Seconds = setting(5, "Seconds between two looks for jobs that are due or were left behind.")
    cancel_grace_sec: SecondsOrZero = setting(30, "Seconds that a cancelled job has to stop by itself.")

    max_attempts: Positive = setting(3, "Attempts a job has, unless it brings its own number.")
    max_interruptions: Count = setting(20, "Times a job may be interrupted through no fault of its own.")
    max_worker_losses: Positive = setting(2, "Workers that may be lost while running a job before it is given up.")
    retry_backoff_base_sec: SecondsOrZero = setting(5, "Seconds before the first retry; doubles with each one.")
    retry_backoff_cap_sec: SecondsOrZero = setting(
        300, "Longest backoff, in seconds; up to half of it comes on top, to spread retries."
    )
    priority_step_sec: SecondsOrZero = setting(60, "Seconds of waiting that one point of priority is worth.")

    max_payload_bytes: Positive = setting(1_048_576, "Largest payload of a job, in bytes.")
    max_result_bytes: Positive = setting(1_048_576, "Largest result of a job, in bytes.")
    job_retention_days: Days = setting(30, "Days that a finished job is kept; 0 keeps it for ever.")
    audit_retention_days: Days = setting(
        90, "Days that the audit of workers and leases is kept, that of a job going with the job; 0 keeps it for ever."
    )
    replay_days: DaysOfAWeek = setting(
        7, "Days for which what each cycle of the control loop saw is kept, to be asked again; 0 keeps none."
    )

    def policy(self) -> "JobPolicy":
        from herdsman.jobs.model import JobPolicy, RetryPolicy  # noqa: PLC0415  (a command has no use for it)

        return JobPolicy(
            claim_ttl=timedelta(seconds=self.claim_ttl_sec),
            cancel_grace=timedelta(seconds=self.cancel_grace_sec),
            retry=RetryPolicy(
                base=timedelta(seconds=self.retry_backoff_base_sec),
                cap=timedelta(seconds=self.retry_backoff_cap_sec),
                max_interruptions=self.max_interruptions,
                max_worker_losses=self.max_worker_losses,
            ),
            max_attempts=self.max_attempts,
            priority_step=timedelta(seconds=self.priority_step_sec),
            max_payload_bytes=self.max_payload_bytes,
            max_result_bytes=self.max_result_bytes,
            job_retention=_days(self.job_retention_days),
            audit_retention=_days(self.audit_retention_days),
        )

    @property
    def replayable_for(self) -> timedelta | None:
        """None where nothing is written down for it."""
        return _days(self.replay_days)


def _days(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None


Mode = Annotated[Literal["off", "shadow", "on"], BeforeValidator(lower), Kind("off, shadow or on")]


class LeaseSettings(Group):
    """The right to use the memory of a GPU."""

    lease_ttl_sec: Seconds = setting(60, "Seconds that a lease lives after its last heartbeat.")
    lease_margin_sec: SecondsOrZero = setting(5, "Seconds before the end of its lease at which the holder stops.")
    gpu_orchestrator_lease_ttl: Seconds = setting(
        3600, "Longest time to live, in seconds, that a lease may be asked for."
    )
    lease_mode: Mode = setting(
        "on", "Whether GPUs are leased: on; shadow, where none is refused and it is only counted; or off."
    )
    lease_reserve_mb: Count = setting(0, "Memory of every GPU that is never leased.")
    lease_tolerance_mb: Count = setting(512, "Memory that may be in use on a GPU that counts as empty.")
    lease_silent_sec: Seconds = setting(60, "Seconds after its last measurement that a GPU may still be leased.")
    lease_empty_sec: SecondsOrZero = setting(
        10, "Seconds after a lease by which its memory is free, or its GPU is quarantined."
    )

    def policy(self) -> "LeasePolicy":
        from herdsman.leases.rules import LeaseMode, LeasePolicy  # noqa: PLC0415  (a command has no use for it)

        return LeasePolicy(
            mode=LeaseMode(self.lease_mode),
            ttl=timedelta(seconds=self.lease_ttl_sec),
            longest_ttl=timedelta(seconds=self.gpu_orchestrator_lease_ttl),
            margin=timedelta(seconds=self.lease_margin_sec),
            reserve_mb=self.lease_reserve_mb,
            tolerance_mb=self.lease_tolerance_mb,
            silent_after=timedelta(seconds=self.lease_silent_sec),
            empty_within=timedelta(seconds=self.lease_empty_sec),
        )


class WorkerSettings(Group):
    """The process that runs jobs on a GPU machine."""

    heartbeat_interval_sec: Seconds = setting(5, "Seconds between two heartbeats of a worker.")
    self_fence_sec: Seconds = setting(
        25, "Seconds without an accepted heartbeat after which a worker stops its own job."
    )
    worker_id: OptionalText = setting(None, "Id of the worker that this process is; the control loop sets it.")
    worker_node_id: Annotated[OptionalText, DefaultText("the name of the machine")] = setting(
        None, "Name of the machine whose GPUs a worker reports."
    )
    bootstrap_token: Secret = setting(None, "Token that a new worker registers with, once; the control loop sets it.")
    worker_start_command: OptionalText = setting(
        None, "Command that starts the worker process on a machine, in place of ours."
    )
    worker_modules: Texts = setting((), "Python modules whose decorated functions are handlers.")
    worker_handlers: Texts = setting((), "Handlers as MODULE:FUNCTION; each runs the jobs of its own type.")
    worker_exec: OptionalText = setting(None, "Commands that run jobs, one TYPE=COMMAND on each line.")
    worker_prefetch: Positive = setting(
        64, "Jobs that a worker holds at most, the one at work included, when they are short; 1 takes none ahead."
    )
    worker_max_jobs: Count = setting(0, "Jobs after which a handler's process is replaced; 1 isolates each, 0 never.")
    worker_unowned_sec: SecondsOrZero = setting(
        900, "Seconds without an accepted heartbeat after which a worker ends itself; 0 never."
    )
    worker_max_lifetime_sec: SecondsOrZero = setting(0, "Longest life, in seconds, of a worker; 0 for no limit.")
    worker_min_free_disk_mb: Count = setting(0, "Free disk, in MB, without which a worker takes no jobs.")
    worker_min_free_memory_mb: Count = setting(0, "Free memory, in MB, without which a worker takes no jobs.")
    worker_health_port: Port = setting(0, "Port of the worker's health endpoints and metrics; 0 for none.")
    worker_health_host: Text = setting("127.0.0.1", "Address that the worker's health endpoints listen on.")
    enable_nvml: Switch = setting(True, "Whether a worker asks its GPUs how they are.")


class WatchdogSettings(Group):
    """The loop library's long poll, its watchdog, and the mailbox behind it."""

    wait_time_sec: SecondsOrZero = setting(30, "Longest wait, in seconds, for a message.")
    max_processing_sec: Seconds = setting(600, "Longest time, in seconds, that the work on one message takes.")
    watchdog_threshold_sec: Seconds = setting(
        720, "Seconds without a beat after which a loop is stalled and its process is ended."
    )
    watchdog_interval_sec: Seconds = setting(60, "Seconds between two looks of the watchdog.")
    readiness_threshold_sec: Annotated[Seconds, DefaultText("half of WATCHDOG_THRESHOLD_SEC")] = Field(
        default_factory=lambda given: given.get("watchdog_threshold_sec", 0) / 2,
        description="Seconds without a beat after which a loop is reported as not ready.",
    )
    visibility_timeout_sec: Seconds = setting(
        1800, "Seconds after which a message that nobody finished is delivered again."
    )


class ConnectorSettings(Group):
    """Jobs that run on an external service such as ComfyUI."""

    worker_health_check_interval_ms: Milliseconds = setting(
        30_000, "Milliseconds between two looks for jobs that have gone quiet."
    )
    worker_websocket_inactivity_timeout_ms: Milliseconds = setting(
        30_000, "Milliseconds without a message after which the service is asked about a job."
    )
    worker_service_patience_sec: Seconds = setting(
        120, "Seconds that a service may be away before the attempt at a job is over."
    )
    worker_service_stall_sec: Seconds = setting(
        900, "Seconds after which a job that does not move is given up, though the service says it runs."
    )
    comfyui_url: OptionalText = setting(
        None, "Where ComfyUI listens; set, this worker runs jobs of type comfyui on it."
    )
    worker_connectors_file: OptionalText = setting(
        None, "TOML file that gives types of jobs to external services, a table for each."
    )
