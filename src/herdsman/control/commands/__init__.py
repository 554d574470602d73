"""The life of a job: one function for each thing that can be asked. Each may be repeated safely."""

from herdsman.control.commands.ask import count_jobs, find_attempts, find_history, find_job, list_jobs
from herdsman.control.commands.claim import claim_for, claim_job, claim_jobs, held_claims
from herdsman.control.commands.exchange import finish_jobs
from herdsman.control.commands.finish import complete_job, complete_jobs, fail_job, release_job
from herdsman.control.commands.intervene import cancel_job, requeue_edited_job, requeue_job, requeue_jobs
from herdsman.control.commands.keep import beat, report_progress, start_job, start_jobs, take_pulse
from herdsman.control.commands.logs import get_checkpoint, last_event, put_checkpoint, read_events, read_logs
from herdsman.control.commands.service import mark_service
from herdsman.control.commands.submit import submit_job, submit_jobs
from herdsman.control.commands.sweep import expire_claims, prune, stage_due_jobs
from herdsman.control.commands.workers import leave, move_worker, register_worker

__all__ = [
    "beat",
    "cancel_job",
    "claim_for",
    "claim_job",
    "claim_jobs",
    "complete_job",
    "complete_jobs",
    "count_jobs",
    "expire_claims",
    "fail_job",
    "find_attempts",
    "find_history",
    "find_job",
    "finish_jobs",
    "get_checkpoint",
    "held_claims",
    "last_event",
    "leave",
    "list_jobs",
    "mark_service",
    "move_worker",
    "prune",
    "put_checkpoint",
    "read_events",
    "read_logs",
    "register_worker",
    "release_job",
    "report_progress",
    "requeue_edited_job",
    "requeue_job",
    "requeue_jobs",
    "stage_due_jobs",
    "start_job",
    "start_jobs",
    "submit_job",
    "submit_jobs",
    "take_pulse",
]
