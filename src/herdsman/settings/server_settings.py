"""The control plane: who leads, how it is reached and watched, and where its state lives."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from herdsman.settings.kinds import (
    Count,
    DatabaseUrl,
    Days,
    DaysOfAWeek,
    DefaultText,
    Group,
    Kind,
    Level,
    Milliseconds,
    OptionalText,
    Port,
    Positive,
    RedisUrl,
    Seconds,
    SecondsOrZero,
    Secret,
    Switch,
    Text,
    Texts,
    WebUrl,
    default_database_url,
    lower,
    setting,
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
