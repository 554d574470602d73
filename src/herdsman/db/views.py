"""Views for people and dashboards. Their names and columns are public: docs/reference/views.md explains them.

Each one reads pieces of indexes: what waits, what ended within the last hour, what lives.
"""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, text

from herdsman.db.dialects import PHRASES, Phrases
from herdsman.db.schema import in_states
from herdsman.states import HELD, WORKER, JobState, WorkerState

HOUR_S, DAY_S = 3600, 86400


def install(connection: Connection) -> None:
    """Put every view in place, in the version of this code. Harmless to repeat."""
    phrases = PHRASES[connection.dialect.name]
    if "REPLACE" not in phrases.create:
        drop(connection)
    for name, columns, source in ((name, *build(phrases)) for name, build in VIEWS.items()):
        chosen = ", ".join(f"{value} AS {column}" for column, value in columns.items())
        connection.exec_driver_sql(f"{creation(connection, name)} AS SELECT {chosen} {source}")


def creation(connection: Connection, name: str) -> str:
    """With the rights of whoever asks, where PostgreSQL can: else a view would show what a policy hides."""
    words = f"{PHRASES[connection.dialect.name].create} {name}"
    version = connection.dialect.server_version_info or ()
    postgres = connection.dialect.name == "postgresql"
    return f"{words} WITH (security_invoker = true)" if postgres and version >= (15,) else words


def drop(connection: Connection) -> None:
    """Before tables change: some databases let nobody touch a table that a view looks at."""
    for name in VIEWS:
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def missing(connection: Connection) -> list[str]:
    there = set(connection.scalars(text(PHRASES[connection.dialect.name].installed)))
    return [name for name in VIEWS if name not in there]


def _status(say: Phrases) -> tuple[dict[str, str], str]:
    hour = say.since(HOUR_S)

    def workers(state: WorkerState) -> str:
        return f"(SELECT COUNT(*) FROM workers WHERE status = '{state}')"

    def ended(state: JobState) -> str:
        return f"(SELECT COUNT(*) FROM orchestrator_jobs WHERE finished_at > {hour} AND status = '{state}')"

    def latest(column: str, table: str, instant: str, which: str) -> str:
        recent = f"{instant} > {hour} AND {which}"
        return f"(SELECT {column} FROM {table} WHERE {recent} ORDER BY {instant} DESC LIMIT 1)"

    oldest = f"(SELECT MIN(run_at) FROM orchestrator_jobs WHERE status = '{JobState.PENDING}')"
    beat = f"(SELECT MIN(last_heartbeat) FROM workers WHERE status = '{WorkerState.ACTIVE}')"
    cycle = "(SELECT MAX(started_at) FROM orchestrator_cycles)"
    rate = "SELECT SUM(cost_per_hour) FROM orchestrator_instances"
    columns = {
        "queue_depth": _jobs(JobState.PENDING),
        "oldest_waiting_s": say.seconds(oldest, say.now),
        "jobs_scheduled": _jobs(JobState.SCHEDULED),
        "jobs_retrying": _jobs(JobState.FAILED),
        "jobs_held": _jobs(*HELD),
        "jobs_done_per_hour": ended(JobState.DONE),
        "jobs_failed_per_hour": ended(JobState.DEAD_LETTER),
        "last_job_error": latest(
            "last_error", "orchestrator_jobs", "finished_at", f"status = '{JobState.DEAD_LETTER}'"
        ),
        **{f"workers_{state}": workers(state) for state in WorkerState},
        "workers_failed_per_hour": f"(SELECT COUNT(*) FROM workers WHERE failed_at > {hour})",
        "last_worker_error": latest("error_reason", "workers", "failed_at", "1 = 1"),
        "oldest_heartbeat_s": say.seconds(beat, say.now),
        "cost_per_hour": f"COALESCE(({rate} WHERE ended_at IS NULL AND started_at IS NOT NULL), 0)",
        "leader": f"(SELECT MAX(holder) FROM orchestrator_leader WHERE expires_at > {say.now})",
        "last_cycle_s": say.seconds(cycle, say.now),
    }
    return columns, ""


def _health(say: Phrases) -> tuple[dict[str, str], str]:
    total, used = (say.member("w.metadata", key) for key in ("vram_total_mb", "vram_used_mb"))
    columns = {
        "worker_id": "w.id",
        "pool": "w.pool",
        "status": "w.status",
        "in_status_s": say.seconds("w.entered_state_at", say.now),
        "heartbeat_age_s": say.seconds("w.last_heartbeat", say.now),
        "vram_total_mb": total,
        "vram_used_mb": used,
        "vram_percent": f"100.0 * ({used}) / NULLIF(({total}), 0)",
        "vram_age_s": say.seconds("w.vram_at", say.now),
        "job_id": "j.job_id",
        "job_held_s": say.seconds("j.claimed_at", say.now),
        "gpu_fault": "w.gpu_fault",
        "error_code": "w.error_code",
        "error": "w.error_reason",
    }
    living = in_states(WORKER.live, "w.status")
    return columns, f"FROM workers w LEFT JOIN orchestrator_jobs j ON j.worker_id = w.id WHERE {living}"


def _performance(say: Phrases) -> tuple[dict[str, str], str]:
    until = f"CASE WHEN w.status = '{WorkerState.TERMINATED}' THEN w.entered_state_at ELSE {say.now} END"
    paid = say.seconds("i.started_at", f"COALESCE(i.ended_at, {say.now})")
    columns = {
        "worker_id": "w.id",
        "pool": "w.pool",
        "status": "w.status",
        "jobs_done": "COALESCE(t.done, 0)",
        "jobs_failed": "COALESCE(t.failed, 0)",
        "jobs_given_back": "COALESCE(t.given_back, 0)",
        "success_rate": "t.done * 1.0 / NULLIF(t.done + t.failed, 0)",
        "mean_processing_s": "t.mean_s",
        "uptime_s": say.seconds("w.created_at", until),
        "cost_estimate": f"COALESCE((SELECT SUM(i.cost_per_hour * {paid} / {HOUR_S}.0)"
        " FROM orchestrator_instances i WHERE i.worker_id = w.id AND i.started_at IS NOT NULL), 0)",
    }
    took = say.seconds("COALESCE(a.started_at, a.claimed_at)", "a.ended_at")
    tallied = (
        "SELECT a.worker_id AS worker_id, "
        f"{_counted(JobState.DONE)} AS done, "
        f"{_counted(JobState.FAILED, JobState.DEAD_LETTER)} AS failed, "
        f"{_counted(JobState.PENDING)} AS given_back, "
        f"AVG(CASE WHEN a.outcome = '{JobState.DONE}' THEN {took} END) AS mean_s "
        f"FROM workers v JOIN job_attempts a ON a.worker_id = v.id WHERE {_lately('v', say)}"
        " GROUP BY a.worker_id"
    )
    return (
        columns,
        f"FROM workers w LEFT JOIN ({tallied}) t ON t.worker_id = w.id WHERE {_lately('w', say)}",
    )


def _jobs(*states: JobState) -> str:
    return f"(SELECT COUNT(*) FROM orchestrator_jobs WHERE {in_states(states)})"


def _counted(*outcomes: JobState) -> str:
    return f"SUM(CASE WHEN {in_states(outcomes, 'a.outcome')} THEN 1 ELSE 0 END)"


def _lately(table: str, say: Phrases) -> str:
    """Living, or gone within a day: the attempts of all others are not even looked at."""
    return f"({in_states(WORKER.live, f'{table}.status')} OR {table}.entered_state_at > {say.since(DAY_S)})"


VIEWS: Mapping[str, Callable[[Phrases], tuple[dict[str, str], str]]] = {
    "orchestrator_status": _status,
    "active_workers_health": _health,
    "worker_performance": _performance,
}


def columns_of(name: str) -> list[str]:
    """The same on every database."""
    return list(VIEWS[name](PHRASES["sqlite"])[0])
