"""The blocks of pages that need a server of somebody's: each is typed beside one that the test starts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.docs.pages import page
from tests.support.databases import ServerDatabases, quick_place
from tests.support.servers.redis import RedisServer
from tests.support.shell import Shell
from tests.support.up_command import until, up


def block(name: str, words: str) -> str:
    (found,) = [each.text for each in page(name).blocks() if words in each.text and each.left_out]
    return found


def typed(command: str, directory: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", command],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_postgresql_database_is_backed_up_and_restored_as_the_page_says(
    postgresql: ServerDatabases, tmp_path: Path
) -> None:
    full, empty = postgresql.fresh(), postgresql.empty()
    plain = {"DATABASE_URL": full, "EMPTY_DATABASE_URL": empty}
    try:
        without_driver = {name: url.replace("+psycopg", "") for name, url in plain.items()}
        typed(block("docs/databases.md", "pg_dump"), tmp_path, **without_driver)
        with create_engine(empty, poolclass=NullPool).connect() as restored:
            assert restored.execute(text("SELECT COUNT(*) FROM orchestrator_jobs")).scalar() == 0
    finally:
        postgresql.drop(empty)


@pytest.mark.timeout(300)
def test_redis_is_spoken_to_as_the_page_says(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    with quick_place():
        server = RedisServer()
    with server:
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "redis-cli").write_text(f'#!/bin/sh\nexec "{shutil.which("redis-cli")}" -p {server.port} "$@"\n')
        (programs / "redis-cli").chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        assert typed(block("docs/redis.md", "ACL SETUSER"), tmp_path, PATH=path) == "OK\n"
        shell.environment |= {"REDIS_URL": server.url(), "ORCH_INGEST": "true", "FAKE_GPUS": "0"}
        with up(shell):
            typed(block("docs/redis.md", "XADD"), tmp_path, PATH=path)
            until(lambda: shell("job", "hello").returncode == 0)
            assert shell.json("job", "hello")["type"] == "greet"
