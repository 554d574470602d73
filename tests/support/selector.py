"""The rule by which a free worker may take a waiting job, for comparison with what the SQL of a claim gives out."""

from typing import Any

from herdsman.jobs.rules import JobSelector


def accepts(wanted: JobSelector, job: Any) -> bool:
    return (
        (not wanted.types or job.type in wanted.types)
        and job.type not in wanted.not_types
        and (wanted.only_agents is None or job.agent in wanted.only_agents)
        and job.agent not in wanted.not_agents
        and job.concurrency_key not in wanted.not_keys
        and (not wanted.no_gpu or job.gpu_memory_mb is None or bool(job.allow_cpu))
        and (wanted.room_mb is None or (job.gpu_memory_mb is not None and job.gpu_memory_mb <= wanted.room_mb))
        and (
            wanted.loaded is None
            or job.model is None
            or job.model in wanted.loaded.here
            or job.model not in wanted.loaded.elsewhere
            or (wanted.overdue_before is not None and job.run_at <= wanted.overdue_before)
        )
    )
