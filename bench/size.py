"""Measures what a finished job leaves on the disk.

Run it with `python -m bench.size`.
"""

import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine, text

from bench.aims import Aim, conclude, surroundings, verdict
from bench.asked import parser, say
from bench.backlog import BATCH
from bench.databases import PLACES, opened
from bench.machine import Watch
from bench.ours import Ours, enlist
from bench.peers.figures import table
from bench.work import PAYLOAD, RESULT
from herdsman.json_text import encode

HEAD = """# Finished jobs on the disk

Bytes that the database grew by, for each job that was submitted, claimed, run and completed: its row, its payload of
{payload} bytes, its result of {result} bytes, its history and every index. {jobs:,} jobs.

"""
MOST = {"SQLite": 1_300, "PostgreSQL": 2_500}


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--jobs", type=int, help="how many are finished")
    asked = made.parse_args()
    jobs, watch = asked.jobs or (2_000 if asked.quick else 20_000), Watch()
    found: dict[str, float] = {}
    for start in PLACES.values():
        with start(["size"]) as place, opened(place.urls["size"]) as services:
            say(place.name)
            enlist(services)
            ours = Ours(services)
            _finish(ours, BATCH)  # what the first ones take is no measure for the others
            before = _bytes(services.database.engine)
            _finish(ours, jobs)
            found[place.name] = (_bytes(services.database.engine) - before) / jobs
    sought = aims(found)
    rows = table(["store", "bytes a job"], [[name, f"{value:,.0f}"] for name, value in found.items()])
    lengths = {name: len(encode(value, what=name, limit=10**6)) for name, value in _BODIES.items()}
    parts = (surroundings(watch, {}, ()), rows, verdict(sought))
    return conclude(asked, "size", HEAD.format(jobs=jobs, **lengths) + "\n\n".join(parts) + "\n", sought, watch)


_BODIES = {"payload": PAYLOAD, "result": RESULT}


def _finish(ours: Ours, jobs: int) -> None:
    done = 0
    while done < jobs:
        ours.submit(100)
        ours.complete(ours.claim(100))
        done += 100


def _bytes(engine: Engine) -> float:
    """Once everything that is on its way to the tables has arrived there."""
    return _SIZES[engine.dialect.name](engine)


def _sqlite(engine: Engine) -> float:
    database = engine.url.database
    assert database is not None
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(database).stat().st_size


def _postgres(engine: Engine) -> float:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM"))
        return connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()


def _mariadb(engine: Engine) -> float:
    """The pages of its tables and indexes, counted anew."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        tables = connection.execute(text("SHOW TABLES")).scalars().all()
        connection.execute(text(f"ANALYZE TABLE {', '.join(tables)}")).close()
        sizes = "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"
        return float(connection.execute(text(sizes)).scalar_one())


_SIZES: Mapping[str, Callable[[Engine], float]] = {
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "mysql": _mariadb,
}


def aims(found: Mapping[str, float]) -> list[Aim]:
    return [
        Aim(what=f"bytes a job of {name}, against {most:,}", ratio=found[name] / most, most=1.0)
        for name, most in MOST.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
