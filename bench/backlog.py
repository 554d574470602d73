"""Puts many waiting jobs into a database, as a long night of submissions would have left them there."""

from datetime import datetime, timedelta

from sqlalchemy import CTE, BigInteger, Connection, String, cast, insert, literal, select, text

from herdsman.context import Services
from herdsman.db.schema import job_bodies, jobs
from herdsman.ids import JobId
from herdsman.jobs.commands import submit_job
from herdsman.jobs.model import NewJob
from herdsman.jobs.rules import place

BATCH = 1000
"""The most that one request submits, and the most that MariaDB counts by recursion."""
_PAUSE = timedelta(microseconds=20)
_FIRST = 10**9


def fill(services: Services, new: NewJob, count: int) -> None:
    """Queue `count` copies of `new`, in batches that came one after the other and before anything else."""
    if count == 0:
        return
    sample = submit_job(services, new).job_id
    with services.database.engine.begin() as connection:
        now = connection.execute(select(jobs.c.created_at).where(jobs.c.job_id == sample)).scalar_one()
        for done in range(0, count - 1, BATCH):
            _add(connection, sample, done, min(BATCH, count - 1 - done), now - _PAUSE * (count - done))
    settle(services)


def _add(connection: Connection, sample: JobId, done: int, count: int, due: datetime) -> None:
    numbers = _numbers(count)
    instants = dict.fromkeys(("created_at", "updated_at", "run_at"), literal(due, jobs.c.run_at.type))
    values = {
        **{column.name: column for column in jobs.c},
        **instants,
        "job_id": literal("backlog-") + cast(numbers.c.n + (_FIRST + done), String(10)),
        "place": numbers.c.n + literal(place(due, 0, timedelta()), BigInteger()),
    }
    copies = select(*(value.label(name) for name, value in values.items())).where(jobs.c.job_id == sample)
    copies = copies.select_from(jobs).join(numbers, literal(1) == 1)
    connection.execute(insert(jobs).from_select(list(values), copies))
    bodies = {**{column.name: column for column in job_bodies.c}, "job_id": values["job_id"]}
    copies = select(*(value.label(name) for name, value in bodies.items())).where(job_bodies.c.job_id == sample)
    copies = copies.select_from(job_bodies).join(numbers, literal(1) == 1)
    connection.execute(insert(job_bodies).from_select(list(bodies), copies))


def _numbers(count: int) -> CTE:
    first = select(literal(1).label("n")).cte("numbers", recursive=True)
    return first.union_all(select(first.c.n + 1).where(first.c.n < count))


def settle(services: Services) -> None:
    """What a server does by itself on a table that has been there for a while; SQLite never does."""
    engine = services.database.engine
    if engine.dialect.name in _UPKEEP:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(_UPKEEP[engine.dialect.name])).close()


_TABLES = "job_states, job_bodies, job_ends, past_attempts, audit_entries, workers, orchestrator_instances"
_UPKEEP = {
    "postgresql": f"VACUUM ANALYZE {_TABLES}",
    "mysql": f"ANALYZE TABLE {_TABLES}",
}
