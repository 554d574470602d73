"""What jobs, leases and the workers that run them live by."""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from herdsman.jobs.model import JobPolicy, RetryPolicy
from herdsman.leases.rules import LeaseMode, LeasePolicy
from herdsman.settings.kinds import (
    Count,
    Days,
    DaysOfAWeek,
    DefaultText,
    Group,
    Kind,
    Milliseconds,
    OptionalText,
    Port,
    Positive,
    Seconds,
    SecondsOrZero,
    Secret,
    Switch,
    Text,
    Texts,
    lower,
    plain,
    setting,
)


class JobSettings(Group):
    """Claims, retries, limits and retention of jobs."""

    claim_ttl_sec: Seconds = setting(
        30, "Seconds after its last heartbeat that a worker keeps the right to its job."
    )
    sweep_interval_sec: Seconds = setting(
        5, "Seconds between two looks for jobs that are due or were left behind."
    )
    cancel_grace_sec: SecondsOrZero = setting(30, "Seconds that a cancelled job has to stop by itself.")

    max_attempts: Positive = setting(3, "Attempts a job has, unless it brings its own number.")
    max_interruptions: Count = setting(20, "Times a job may be interrupted through no fault of its own.")
    max_worker_losses: Positive = setting(
        2, "Workers that may be lost while running a job before it is given up."
    )
    retry_backoff_base_sec: SecondsOrZero = setting(
        5, "Seconds before the first retry; doubles with each one."
    )
    retry_backoff_cap_sec: SecondsOrZero = setting(
        300, "Longest backoff, in seconds; up to half of it comes on top, to spread retries."
    )
    priority_step_sec: SecondsOrZero = setting(60, "Seconds of waiting that one point of priority is worth.")

    max_payload_bytes: Positive = setting(1_048_576, "Largest payload of a job, in bytes.")
    max_result_bytes: Positive = setting(1_048_576, "Largest result of a job, in bytes.")
    job_retention_days: Days = setting(30, "Days that a finished job is kept; 0 keeps it for ever.")
    audit_retention_days: Days = setting(
        90,
        "Days that the audit of workers and leases is kept, that of a job going with the job; 0 keeps it for ever.",
    )
    replay_days: DaysOfAWeek = setting(
        7, "Days for which what each cycle of the control loop saw is kept, to be asked again; 0 keeps none."
    )

    def policy(self) -> JobPolicy:
        return JobPolicy(
            claim_ttl=timedelta(seconds=self.claim_ttl_sec),
            cancel_grace=timedelta(seconds=self.cancel_grace_sec),
            retry=self._retry(),
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

    def _retry(self) -> RetryPolicy:
        return RetryPolicy(
            base=timedelta(seconds=self.retry_backoff_base_sec),
            cap=timedelta(seconds=self.retry_backoff_cap_sec),
            max_interruptions=self.max_interruptions,
            max_worker_losses=self.max_worker_losses,
        )


def _days(days: int) -> timedelta | None:
    return timedelta(days=days) if days else None


Mode = Annotated[Literal["off", "shadow", "on"], BeforeValidator(lower), Kind("off, shadow or on", plain)]


class LeaseSettings(Group):
    """The right to use the memory of a GPU."""

    lease_ttl_sec: Seconds = setting(60, "Seconds that a lease lives after its last heartbeat.")
    lease_margin_sec: SecondsOrZero = setting(
        5, "Seconds before the end of its lease at which the holder stops."
    )
    gpu_orchestrator_lease_ttl: Seconds = setting(
        3600, "Longest time to live, in seconds, that a lease may be asked for."
    )
    lease_mode: Mode = setting(
        "on", "Whether GPUs are leased: on; shadow, where none is refused and it is only counted; or off."
    )
    lease_reserve_mb: Count = setting(0, "Memory of every GPU that is never leased.")
    lease_tolerance_mb: Count = setting(512, "Memory that may be in use on a GPU that counts as empty.")
    lease_silent_sec: Seconds = setting(
        60, "Seconds after its last measurement that a GPU may still be leased."
    )
    lease_empty_sec: SecondsOrZero = setting(
        10, "Seconds after a lease by which its memory is free, or its GPU is quarantined."
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


def _half_the_threshold(given: dict[str, Any]) -> float:
    """A threshold that was refused is missing; what follows from it no longer matters then."""
    return given.get("watchdog_threshold_sec", 0) / 2


class WorkerSettings(Group):
    """The process that runs jobs on a GPU machine."""

    heartbeat_interval_sec: Seconds = setting(5, "Seconds between two heartbeats of a worker.")
    self_fence_sec: Seconds = setting(
        25, "Seconds without an accepted heartbeat after which a worker stops its own job."
    )
    worker_id: OptionalText = setting(
        None, "Id of the worker that this process is; the control loop sets it."
    )
    worker_node_id: Annotated[OptionalText, DefaultText("the name of the machine")] = setting(
        None, "Name of the machine whose GPUs a worker reports."
    )
    bootstrap_token: Secret = setting(
        None, "Token that a new worker registers with, once; the control loop sets it."
    )
    worker_start_command: OptionalText = setting(
        None, "Command that starts the worker process on a machine, in place of ours."
    )
    worker_modules: Texts = setting((), "Python modules whose decorated functions are handlers.")
    worker_handlers: Texts = setting((), "Handlers as MODULE:FUNCTION; each runs the jobs of its own type.")
    worker_exec: OptionalText = setting(None, "Commands that run jobs, one TYPE=COMMAND on each line.")
    worker_max_jobs: Count = setting(
        0, "Jobs after which a handler's process is replaced; 1 isolates each, 0 never."
    )
    worker_unowned_sec: SecondsOrZero = setting(
        900, "Seconds without an accepted heartbeat after which a worker ends itself; 0 never."
    )
    worker_max_lifetime_sec: SecondsOrZero = setting(
        0, "Longest life, in seconds, of a worker; 0 for no limit."
    )
    worker_min_free_disk_mb: Count = setting(0, "Free disk, in MB, without which a worker takes no jobs.")
    worker_min_free_memory_mb: Count = setting(0, "Free memory, in MB, without which a worker takes no jobs.")
    worker_health_port: Port = setting(0, "Port of the worker's health endpoints and metrics; 0 for none.")
    worker_health_host: Text = setting("127.0.0.1", "Address that the worker's health endpoints listen on.")
    enable_nvml: Switch = setting(True, "Whether a worker asks its GPUs how they are.")


class WatchdogSettings(Group):
    """The loop library's long poll, its watchdog, and the mailbox behind it."""

    wait_time_sec: SecondsOrZero = setting(30, "Longest wait, in seconds, for a message.")
    max_processing_sec: Seconds = setting(
        600, "Longest time, in seconds, that the work on one message takes."
    )
    watchdog_threshold_sec: Seconds = setting(
        720, "Seconds without a beat after which a loop is stalled and its process is ended."
    )
    watchdog_interval_sec: Seconds = setting(60, "Seconds between two looks of the watchdog.")
    readiness_threshold_sec: Annotated[Seconds, DefaultText("half of WATCHDOG_THRESHOLD_SEC")] = Field(
        default_factory=_half_the_threshold,
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
