"""The GPU machine's side: the worker, its watchdog, and the services it speaks to."""

from typing import Annotated, Any

from pydantic import Field

from herdsman.settings.group import Group
from herdsman.settings.kinds import Count, DefaultText, Milliseconds, Port, Seconds, SecondsOrZero, Switch
from herdsman.settings.texts import OptionalText, Secret, Text, Texts


def _half_the_threshold(given: dict[str, Any]) -> float:
    """A threshold that was refused is missing; what follows from it no longer matters then."""
    return given.get("watchdog_threshold_sec", 0) / 2


class WorkerSettings(Group):
    """The process that runs jobs on a GPU machine."""

    heartbeat_interval_sec: Seconds = Field(
        default=5, description="Seconds between two heartbeats of a worker."
    )
    self_fence_sec: Seconds = Field(
        default=25,
        description="Seconds without an accepted heartbeat after which a worker stops its own job.",
    )
    worker_id: OptionalText = Field(
        default=None, description="Id of the worker that this process is; the control loop sets it."
    )
    worker_node_id: Annotated[OptionalText, DefaultText("the name of the machine")] = Field(
        default=None, description="Name of the machine whose GPUs a worker reports."
    )
    bootstrap_token: Secret = Field(
        default=None, description="Token that a new worker registers with, once; the control loop sets it."
    )
    worker_start_command: OptionalText = Field(
        default=None, description="Command that starts the worker process on a machine, in place of ours."
    )
    worker_modules: Texts = Field(
        default=(), description="Python modules whose decorated functions are handlers."
    )
    worker_handlers: Texts = Field(
        default=(), description="Handlers as MODULE:FUNCTION; each runs the jobs of its own type."
    )
    worker_exec: OptionalText = Field(
        default=None, description="Commands that run jobs, one TYPE=COMMAND on each line."
    )
    worker_max_jobs: Count = Field(
        default=0, description="Jobs after which a handler's process is replaced; 1 isolates each, 0 never."
    )
    worker_unowned_sec: SecondsOrZero = Field(
        default=900,
        description="Seconds without an accepted heartbeat after which a worker ends itself; 0 never.",
    )
    worker_max_lifetime_sec: SecondsOrZero = Field(
        default=0, description="Longest life, in seconds, of a worker; 0 for no limit."
    )
    worker_min_free_disk_mb: Count = Field(
        default=0, description="Free disk, in MB, without which a worker takes no jobs."
    )
    worker_min_free_memory_mb: Count = Field(
        default=0, description="Free memory, in MB, without which a worker takes no jobs."
    )
    worker_health_port: Port = Field(
        default=0, description="Port of the worker's health endpoints and metrics; 0 for none."
    )
    worker_health_host: Text = Field(
        default="127.0.0.1", description="Address that the worker's health endpoints listen on."
    )
    enable_nvml: Switch = Field(default=True, description="Whether a worker asks its GPUs how they are.")


class WatchdogSettings(Group):
    """The loop library's long poll, its watchdog, and the mailbox behind it."""

    wait_time_sec: SecondsOrZero = Field(default=30, description="Longest wait, in seconds, for a message.")
    max_processing_sec: Seconds = Field(
        default=600, description="Longest time, in seconds, that the work on one message takes."
    )
    watchdog_threshold_sec: Seconds = Field(
        default=720,
        description="Seconds without a beat after which a loop is stalled and its process is ended.",
    )
    watchdog_interval_sec: Seconds = Field(
        default=60, description="Seconds between two looks of the watchdog."
    )
    readiness_threshold_sec: Annotated[Seconds, DefaultText("half of WATCHDOG_THRESHOLD_SEC")] = Field(
        default_factory=_half_the_threshold,
        description="Seconds without a beat after which a loop is reported as not ready.",
    )
    visibility_timeout_sec: Seconds = Field(
        default=1800, description="Seconds after which a message that nobody finished is delivered again."
    )


class ConnectorSettings(Group):
    """Jobs that run on an external service such as ComfyUI."""

    worker_health_check_interval_ms: Milliseconds = Field(
        default=30_000, description="Milliseconds between two looks for jobs that have gone quiet."
    )
    worker_websocket_inactivity_timeout_ms: Milliseconds = Field(
        default=30_000,
        description="Milliseconds without a message after which the service is asked about a job.",
    )
    worker_service_patience_sec: Seconds = Field(
        default=120, description="Seconds that a service may be away before the attempt at a job is over."
    )
    worker_service_stall_sec: Seconds = Field(
        default=900,
        description="Seconds after which a job that does not move is given up, though the service says it runs.",
    )
    comfyui_url: OptionalText = Field(
        default=None, description="Where ComfyUI listens; set, this worker runs jobs of type comfyui on it."
    )
    worker_connectors_file: OptionalText = Field(
        default=None, description="TOML file that gives types of jobs to external services, a table for each."
    )
