"""The least that the ground we stand on costs: a row that wakes a listener, and a route that does nothing.

Run it with `python -m bench.floor`. Who runs jobs through a database, or takes them by HTTP, cannot be faster.
"""

import argparse
import json
import multiprocessing
import os
import socket
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import uvicorn
from fastapi import FastAPI

from bench.load import Load, posts_per_second
from bench.peers import marks
from bench.peers.catalogue import postgres
from bench.peers.child import sample
from bench.peers.figures import percentile, table
from bench.work import PAYLOAD
from tests.support.servers.server import free_port

HOST = "127.0.0.1"
STARTING_S = 30.0
_STEP_S = 0.01
_JOBS = "CREATE TABLE jobs (id INTEGER PRIMARY KEY GENERATED ALWAYS AS IDENTITY, status TEXT, payload TEXT)"
_NEXT = "SELECT id, payload FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1"
_SUBMIT = "WITH new AS (INSERT INTO jobs (status, payload) VALUES ('pending', %s) RETURNING id) SELECT pg_notify('jobs', '') FROM new"


def main() -> None:
    asked = _arguments()
    dispatch = {
        "PostgreSQL, NOTIFY": postgres_dispatch(asked.samples, asked.pause),
        "SQLite, polled without a pause": sqlite_dispatch(asked.samples, asked.pause),
    }
    rows = [[name, *(_ms(percentile(times, share)) for share in (0.5, 0.99))] for name, times in dispatch.items()]
    print(table(["submit to start, ms", "p50", "p99"], rows), end="\n\n")
    loads = {path: bare_posts(path, asked.clients, asked.seconds) for path in ("/async", "/plain")}
    posts = [
        [f"FastAPI, {path}", f"{load.per_second:,.0f}", _ms(load.p50), _ms(load.p99), str(load.errors)]
        for path, load in loads.items()
    ]
    print(table([f"POST, {asked.clients} clients", "per second", "p50, ms", "p99, ms", "errors"], posts))


def postgres_dispatch(samples: int, pause_s: float) -> list[float]:
    """Seconds from before the row is inserted until a listener in another process has claimed it durably."""
    with postgres() as url, psycopg.connect(url, autocommit=True) as connection, _marks() as path:
        connection.execute(_JOBS)
        with _beside(_listen, url, path):
            return _latency(lambda: _insert(connection), path, samples, pause_s)


def sqlite_dispatch(samples: int, pause_s: float) -> list[float]:
    """The same on a file, where nobody can be woken: the other process looks again and again."""
    with _marks() as path, closing(_open_sqlite(path.with_name("jobs.db"))) as connection:
        connection.execute(_JOBS.replace(" GENERATED ALWAYS AS IDENTITY", ""))
        insert = "INSERT INTO jobs (status, payload) VALUES ('pending', ?)"
        with _beside(_poll, path.with_name("jobs.db"), path):
            return _latency(lambda: connection.execute(insert, (json.dumps(PAYLOAD),)), path, samples, pause_s)


def bare_posts(path: str, clients: int, seconds: float) -> Load:
    """`path` is /async, which answers in the event loop, or /plain, which answers in a thread as ours do."""
    port = free_port()
    with _beside(_serve, port):
        _wait(lambda: _listens(port))
        body = json.dumps({"type": "render", "payload": PAYLOAD}).encode()
        return posts_per_second(f"http://{HOST}:{port}{path}", body, {}, clients, seconds)


def _latency(submit: Callable[[], object], path: Path, samples: int, pause_s: float) -> list[float]:
    _wait(lambda: marks.count(path) == 1)
    submitted = sample(submit, path, samples, pause_s)
    began = marks.read(path)[-samples:]
    return [after - before for before, after in zip(submitted, began, strict=True)]


def _insert(connection: psycopg.Connection) -> None:
    connection.execute(_SUBMIT, (json.dumps(PAYLOAD),))


def _listen(url: str, path: Path) -> None:
    mark = marks.marker(path)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("LISTEN jobs")
        mark()  # from here on nothing is missed
        while True:
            # The connection cannot be used before the generator has ended.
            deque(connection.notifies(stop_after=1), maxlen=0)
            with connection.transaction():
                row = connection.execute(f"{_NEXT} FOR UPDATE SKIP LOCKED").fetchone()
                assert row is not None, "a notification came before its row"
                connection.execute("UPDATE jobs SET status = 'running' WHERE id = %s", row[:1])
            mark()


def _poll(file: Path, path: Path) -> None:
    mark = marks.marker(path)
    with closing(_open_sqlite(file)) as connection:
        mark()
        while True:
            if connection.execute(_NEXT).fetchone() is not None:
                connection.execute("BEGIN IMMEDIATE")
                row = connection.execute(_NEXT).fetchone()
                connection.execute("UPDATE jobs SET status = 'running' WHERE id = ?", row[:1])
                connection.execute("COMMIT")
                mark()


def _open_sqlite(file: Path) -> sqlite3.Connection:
    """As ours is: a commit is on the disk before the answer."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=STARTING_S)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _serve(port: int) -> None:
    app = FastAPI()

    async def at_once(body: dict[str, Any]) -> dict[str, Any]:
        return {"fields": len(body)}

    def in_a_thread(body: dict[str, Any]) -> dict[str, Any]:
        return {"fields": len(body)}

    app.add_api_route("/async", at_once, methods=["POST"], status_code=201)
    app.add_api_route("/plain", in_a_thread, methods=["POST"], status_code=201)
    uvicorn.run(app, host=HOST, port=port, log_level="warning", access_log=False)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def _marks() -> Generator[Path]:
    with TemporaryDirectory(prefix="herdsman-bench-") as directory:
        yield Path(directory, "marks")


@contextmanager
def _beside(work: Callable[..., None], *given: object) -> Generator[None]:
    """Another process, which ends with the block, and with us."""
    process = multiprocessing.get_context("spawn").Process(target=_child, args=(work, *given), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _child(work: Callable[..., None], *given: object) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    work(*given)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _wait(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STARTING_S
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"The other process was not ready after {STARTING_S:.0f} s; what it said is above.")
        time.sleep(_STEP_S)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200, help="how many jobs are submitted")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between them, give or take half")
    parser.add_argument("--clients", type=int, default=16, help="connections that are kept alive")
    parser.add_argument("--seconds", type=float, default=5, help="how long they send")
    return parser.parse_args()


if __name__ == "__main__":
    main()
