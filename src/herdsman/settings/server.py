"""The control plane: who leads, how it is reached and watched, and where its state lives."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from herdsman.settings.kinds import (
    DatabaseUrl,
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
    plain,
    setting,
)

LogFormat = Annotated[
    Literal["auto", "json", "text"], BeforeValidator(lower), Kind("auto, json or text", plain)
]


class LeaderSettings(Group):
    """Which replica of the control plane leads."""

    leader_renew_sec: Seconds = setting(2, "Seconds between two renewals by the leader.")
    leader_ttl_sec: Seconds = setting(10, "Seconds after its last renewal that a leader still leads.")
    outage_grace_sec: SecondsOrZero = setting(
        1800,
        "Seconds that workers may go on with their jobs while the database is away, if one replica runs.",
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
    api_url: WebUrl = setting(
        None, "Where workers and the command line find the API; without it, on this machine."
    )
    api_token: Secret = setting(None, "Token that the command line shows to the API.")
    api_allowed_hosts: Texts = setting(
        (), "Names, besides those of this machine, by which the API may be called."
    )
    api_tls_certificate: OptionalText = setting(
        None, "File with the certificate, if the API speaks TLS itself."
    )
    api_tls_key: OptionalText = setting(None, "File with the key of that certificate.")
    api_behind_proxy: Switch = setting(
        False, "Whether a proxy in front speaks TLS; without one, plain HTTP stays on this machine."
    )
    api_proxies: Texts = setting((), "Addresses of proxies whose word on the client's address is taken.")
    api_max_body_bytes: Positive = setting(
        1_114_112, "Largest body of a request; those about many jobs may have 16 MiB."
    )
    api_max_streams: Positive = setting(1000, "Most event streams that are open at a time on one replica.")
    api_max_streams_per_token: Positive = setting(
        50, "Most event streams that one token may have open on one replica."
    )
    api_max_streams_per_address: Positive = setting(
        200, "Most event streams that one address may have open on one replica."
    )
    token_pepper: Secret = setting(
        None, "Key that tokens are hashed with, the same for all replicas; without it, one in a file."
    )
    worker_token_ttl_sec: Seconds = setting(
        86_400, "Life, in seconds, of a worker's token; its heartbeats renew it."
    )
    bootstrap_token_ttl_sec: Seconds = setting(
        1800, "Seconds within which a new machine must register its worker."
    )
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
    log_format: LogFormat = setting(
        "auto", "Form of a log line; auto is text on a terminal and json elsewhere."
    )
    log_file: OptionalText = setting(None, "File that gets the log lines as well.")
    enable_db_logging: Switch = setting(False, "Whether log lines are stored in the database too.")
    db_logging_required: Switch = setting(
        False, "Whether a start is refused when log lines cannot be stored."
    )
    db_log_level: Level = setting("info", "Least important level that is stored.")
    db_log_batch_size: Positive = setting(50, "Log lines that are stored at once.")
    db_log_flush_interval: Seconds = setting(5, "Longest time, in seconds, before lines are stored.")
    orchestrator_instance_id: OptionalText = setting(
        None, "Name of this replica in logs and at the push gateway; without it, that of its machine."
    )


def _local_file() -> SecretStr:
    return SecretStr(default_database_url())


class DatabaseSettings(Group):
    """The database that holds the truth."""

    database_url: Annotated[
        DatabaseUrl, DefaultText("sqlite:///USER_DATA_DIRECTORY/herdsman/herdsman.db")
    ] = Field(
        default_factory=_local_file,
        description="Database: SQLite, PostgreSQL or MariaDB.",
    )
    sql_pool_size: Positive = setting(10, "Most connections to the database per process.")
    sql_timeout_sec: Seconds = setting(10, "Seconds that a statement may take.")
    sql_poll_sec: Seconds = setting(
        1, "Seconds between two looks of the server for new jobs in the database."
    )


class StreamSettings(Group):
    """Redis Streams, which only hint at jobs that the database holds."""

    redis_url: RedisUrl = setting(None, "Redis server; without it the database is polled.")
    orch_stream_prefix: Text = setting("stream:orchestrator", "What the name of a stream begins with.")
    orch_claim_idle_ms: Milliseconds = setting(
        60_000, "Milliseconds after which an unacknowledged entry may be taken over."
    )
    orch_reclaim_interval_s: Seconds = setting(30, "Seconds between two looks for entries to take over.")
    stream_resync_sec: Seconds = setting(
        10, "Seconds between two comparisons of the streams with the database."
    )
    orch_ingest: Switch = setting(
        False, "Whether jobs that are added to the ingest stream by hand are accepted."
    )
    orch_ingest_agent: Text = setting(
        "ingest", "Agent for whom jobs of the ingest stream run, whatever they say."
    )


class ResultSettings(Group):
    """Where the files are kept that jobs make."""

    result_store: Annotated[OptionalText, DefaultText("the directory results inside LOCAL_STATE_DIR")] = (
        setting(
            None, "Directory for the files of jobs, or s3://BUCKET/PREFIX if workers are on other machines."
        )
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
