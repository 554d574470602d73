"""The peers that are measured, as they come and, where that holds them back, as somebody would tune them."""

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial

from bench.peers.peer import NodeProgram, Peer, Program
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

TOGETHER = 100
_REDIS_AS_IT_COMES = ("--appendonly", "no", "--save", "3600 1 300 100 60 10000")


@contextmanager
def redis() -> Generator[str]:
    """With its own defaults: a snapshot now and then, so that a crash may lose a minute of jobs."""
    with RedisServer(options=_REDIS_AS_IT_COMES) as server:
        yield server.url()


@contextmanager
def postgres() -> Generator[str]:
    """With its own defaults: every commit is on the disk before the answer."""
    with PostgresServer(durable=True) as server:
        server.create_database("bench")
        yield server.url("bench").replace("+psycopg", "")


def peers(*, python: str = sys.executable, arq_python: str = sys.executable) -> Mapping[str, Peer]:
    """By name. arq wants an older redis than the others, hence a Python of its own: see the group bench-arq."""
    usual = partial(Program, python=python)
    found = (*_on_redis(usual, arq_python), *_on_postgres(usual))
    return {program.name: program for program in found}


def _on_redis(usual: "partial[Program]", arq_python: str) -> Generator[Program]:
    alone = partial(usual, package="redis", side="on_streams", start=redis)
    yield alone(name="streams alone, one by one")
    together = {"together": TOGETHER}
    yield alone(name=f"streams alone, by {TOGETHER}", options=together, flooding=together)
    yield usual(name="celery", package="celery", side="on_celery", start=redis)
    arq = partial(Program, package="arq", side="on_arq", start=redis, python=arq_python)
    yield arq(name="arq")
    yield arq(name="arq, polling every ms", options={"poll_s": 0.001})
    yield usual(name="taskiq, lists", package="taskiq", side="on_taskiq", start=redis)
    yield usual(name="taskiq, streams", package="taskiq", side="on_taskiq_streams", start=redis)
    yield usual(name="huey", package="huey", side="on_huey", start=redis)
    dramatiq = partial(usual, package="dramatiq", side="on_dramatiq", start=redis)
    yield dramatiq(name="dramatiq")
    tuned = {"dramatiq_worker_timeout": "1", "dramatiq_queue_prefetch": "100"}
    yield dramatiq(name="dramatiq, polling every ms, prefetch 100", environment=tuned)


def _on_postgres(usual: "partial[Program]") -> Generator[Program]:
    yield usual(name="procrastinate", package="procrastinate", side="on_procrastinate", start=postgres)
    pgqueuer = partial(
        usual,
        package="pgqueuer",
        side="on_pgqueuer",
        start=postgres,
        unfinished="SELECT count(*) FROM pgqueuer",
    )
    yield pgqueuer(name="pgqueuer")
    yield pgqueuer(name="pgqueuer, batch 100", options={"batch_size": 100})
    yield NodeProgram(
        name="graphile-worker",
        package="graphile-worker",
        side="on_graphile",
        start=postgres,
        unfinished="SELECT count(*) FROM graphile_worker._private_jobs",
    )
