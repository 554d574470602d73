"""Celery on Redis: results ignored, the solo pool, and none of the chatter between workers."""
# pyright: basic, reportMissingImports=false

from collections.abc import Callable, Generator
from contextlib import contextmanager

from celery import Celery

_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")


def fill(url: str, count: int) -> None:
    with submitter(url) as submit:
        for _ in range(count):
            submit()


@contextmanager
def submitter(url: str) -> Generator[Callable[[], object]]:
    def noop() -> None: ...

    yield _app(url).task(name="noop")(noop).delay


def work(url: str, mark: Callable[[], None]) -> None:
    """No child process: nothing is passed on before the handler runs."""
    app = _app(url)
    app.task(name="noop")(mark)
    app.worker_main(["worker", "--pool=solo", "--concurrency=1", *_QUIET])


def _app(url: str) -> Celery:
    app = Celery("bench", broker=url)
    app.conf.task_ignore_result = True
    return app
