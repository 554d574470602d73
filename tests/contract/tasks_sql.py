"""The functions of the view `tasks` as a person calls them on PostgreSQL and MariaDB."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import NullPool, TextClause, create_engine, text

from herdsman.db.connection import Database, records
from herdsman.ids import JobId, WorkerId

Task = dict[str, Any]


class Face:
    """Rows come from functions on PostgreSQL and from procedures on MariaDB; a value from a function on both."""

    def __init__(self, run: Callable[[TextClause], list[Task]], *, mariadb: bool) -> None:
        self._run = run
        self._mariadb = mariadb

    def claim(self, worker: str | None, name: str = "func_claim_available_task") -> Task | None:
        found = self._rows(name, worker)
        assert len(found) <= 1
        return found[0] if found else None

    def must_claim(self, worker: str) -> Task:
        task = self.claim(worker)
        assert task is not None, "there was no task to claim"
        return task

    def complete(self, task_id: str | None, result: object = None, name: str = "mark_task_complete") -> str:
        said = None if result is None else json.dumps(result)
        return self._value(name, task_id, said, kinds=("text", "jsonb"))

    def fail(self, task_id: str | None, error: str | None = None, name: str = "mark_task_failed") -> str:
        return self._value(name, task_id, error, kinds=("text", "text"))

    def beat(self, worker: str, total: float | None = None, used: float | None = None) -> bool:
        kinds = ("text", "double precision", "double precision")
        return bool(self._value("func_update_worker_heartbeat", worker, total, used, kinds=kinds))

    def reset(self, *workers: WorkerId) -> int:
        names: object = json.dumps(workers) if self._mariadb else list(workers)
        return int(self._value("func_reset_orphaned_tasks", names, kinds=("text[]",)))

    def by_status(self, status: str) -> list[Task]:
        return self._rows("func_get_tasks_by_status", status)

    def task(self, job_id: JobId) -> Task:
        (row,) = self._run(text("SELECT * FROM tasks WHERE id = :id").bindparams(id=job_id))
        return row

    def _rows(self, name: str, argument: str | None) -> list[Task]:
        call = "CALL {}(:a)" if self._mariadb else "SELECT * FROM {}(CAST(:a AS text))"
        return self._run(text(call.format(name)).bindparams(a=argument))

    def _value(self, name: str, *arguments: object, kinds: Sequence[str]) -> Any:
        words = [f":a{index}" if self._mariadb else f"CAST(:a{index} AS {kind})" for index, kind in enumerate(kinds)]
        values = {f"a{index}": argument for index, argument in enumerate(arguments)}
        (row,) = self._run(text(f"SELECT {name}({', '.join(words)}) AS value").bindparams(**values))
        return row["value"]


def in_transactions(database: Database) -> Face:
    """As the control plane would call it."""
    return Face(lambda asked: database.transact(lambda tx: records(tx, asked)), mariadb=database.backend == "MariaDB")


@contextmanager
def typed(database: Database) -> Generator[Face]:
    """As a person at a prompt: a plain connection with the server's own settings, each statement for itself."""
    engine = create_engine(database.engine.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:

        def run(asked: TextClause) -> list[Task]:
            return [dict(row._mapping) for row in connection.execute(asked)]  # pyright: ignore[reportPrivateUsage]

        yield Face(run, mariadb=database.backend == "MariaDB")
