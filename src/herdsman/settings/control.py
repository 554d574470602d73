"""The control plane: who leads, what is leased, and how it is reached and watched."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from herdsman.core.leasing import LeaseMode, LeasePolicy
from herdsman.settings.group import Group
from herdsman.settings.kinds import Count, Kind, Port, Positive, Seconds, SecondsOrZero, Switch, plain
from herdsman.settings.texts import Level, OptionalText, Secret, Text, Texts, WebUrl, lower

LogFormat = Annotated[
    Literal["auto", "json", "text"], BeforeValidator(lower), Kind("auto, json or text", plain)
]


Mode = Annotated[Literal["off", "shadow", "on"], BeforeValidator(lower), Kind("off, shadow or on", plain)]


class LeaderSettings(Group):
    """Which replica of the control plane leads."""

    leader_renew_sec: Seconds = Field(default=2, description="Seconds between two renewals by the leader.")
    leader_ttl_sec: Seconds = Field(
        default=10, description="Seconds after its last renewal that a leader still leads."
    )
    outage_grace_sec: SecondsOrZero = Field(
        default=1800,
        description="Seconds that workers may go on with their jobs while the database is away, if one replica runs.",
    )
    gpu_orchestrator_leader_loop_s: Seconds = Field(
        default=2, description="Seconds between two tries of a follower to become the leader."
    )
    gpu_orchestrator_leader_lock: Text = Field(
        default="gpu_orchestrator_leader", description="Name of the advisory lock that the leader holds."
    )


class LeaseSettings(Group):
    """The right to use the memory of a GPU."""

    lease_ttl_sec: Seconds = Field(
        default=60, description="Seconds that a lease lives after its last heartbeat."
    )
    lease_margin_sec: SecondsOrZero = Field(
        default=5, description="Seconds before the end of its lease at which the holder stops."
    )
    gpu_orchestrator_lease_ttl: Seconds = Field(
        default=3600, description="Longest time to live, in seconds, that a lease may be asked for."
    )
    lease_mode: Mode = Field(
        default="on",
        description="Whether GPUs are leased: on; shadow, where none is refused and it is only counted; or off.",
    )
    lease_reserve_mb: Count = Field(default=0, description="Memory of every GPU that is never leased.")
    lease_tolerance_mb: Count = Field(
        default=512, description="Memory that may be in use on a GPU that counts as empty."
    )
    lease_silent_sec: Seconds = Field(
        default=60, description="Seconds after its last measurement that a GPU may still be leased."
    )
    lease_empty_sec: SecondsOrZero = Field(
        default=10,
        description="Seconds after a lease by which its memory is free, or its GPU is quarantined.",
    )

    def policy(self) -> LeasePolicy:
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


class ApiSettings(Group):
    """How the control plane is reached and watched."""

    api_host: Text = Field(default="127.0.0.1", description="Address that the API listens on.")
    api_port: Port = Field(
        default=8765, description="Port that the API listens on; 0 takes any that is free."
    )
    api_url: WebUrl = Field(
        default=None,
        description="Where workers and the command line find the API; without it, on this machine.",
    )
    api_token: Secret = Field(default=None, description="Token that the command line shows to the API.")
    api_allowed_hosts: Texts = Field(
        default=(), description="Names, besides those of this machine, by which the API may be called."
    )
    api_tls_certificate: OptionalText = Field(
        default=None, description="File with the certificate, if the API speaks TLS itself."
    )
    api_tls_key: OptionalText = Field(default=None, description="File with the key of that certificate.")
    api_behind_proxy: Switch = Field(
        default=False,
        description="Whether a proxy in front speaks TLS; without one, plain HTTP stays on this machine.",
    )
    api_proxies: Texts = Field(
        default=(), description="Addresses of proxies whose word on the client's address is taken."
    )
    api_max_body_bytes: Positive = Field(
        default=1_114_112, description="Largest body of a request; those about many jobs may have 16 MiB."
    )
    api_max_streams: Positive = Field(
        default=1000, description="Most event streams that are open at a time on one replica."
    )
    api_max_streams_per_token: Positive = Field(
        default=50, description="Most event streams that one token may have open on one replica."
    )
    api_max_streams_per_address: Positive = Field(
        default=200, description="Most event streams that one address may have open on one replica."
    )
    token_pepper: Secret = Field(
        default=None,
        description="Key that tokens are hashed with, the same for all replicas; without it, one in a file.",
    )
    worker_token_ttl_sec: Seconds = Field(
        default=86_400, description="Life, in seconds, of a worker's token; its heartbeats renew it."
    )
    bootstrap_token_ttl_sec: Seconds = Field(
        default=1800, description="Seconds within which a new machine must register its worker."
    )
    admin_api_key: Secret = Field(default=None, description="Key that gives its bearer the role of an admin.")
    safe_mode: Switch = Field(
        default=False, description="Whether everything is refused that would change something."
    )
    strict_model_store: Switch = Field(
        default=False,
        description="Whether a job is refused whose model no open pool names and no worker has loaded.",
    )
    metrics_pushgateway_url: WebUrl = Field(
        default=None,
        description="Prometheus push gateway that gets the metrics as well, with each cycle; each replica on a machine needs its own ORCHESTRATOR_INSTANCE_ID.",
    )


class LogSettings(Group):
    """What is logged, how, and where to."""

    log_level: Level = Field(default="info", description="Least important level that is logged.")
    log_format: LogFormat = Field(
        default="auto", description="Form of a log line; auto is text on a terminal and json elsewhere."
    )
    log_file: OptionalText = Field(default=None, description="File that gets the log lines as well.")
    enable_db_logging: Switch = Field(
        default=False, description="Whether log lines are stored in the database too."
    )
    db_logging_required: Switch = Field(
        default=False, description="Whether a start is refused when log lines cannot be stored."
    )
    db_log_level: Level = Field(default="info", description="Least important level that is stored.")
    db_log_batch_size: Positive = Field(default=50, description="Log lines that are stored at once.")
    db_log_flush_interval: Seconds = Field(
        default=5, description="Longest time, in seconds, before lines are stored."
    )
    orchestrator_instance_id: OptionalText = Field(
        default=None,
        description="Name of this replica in logs and at the push gateway; without it, that of its machine.",
    )
