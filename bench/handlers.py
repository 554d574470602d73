"""Handlers that do nothing but say when they began, loaded by a real worker."""

import os
from pathlib import Path

from bench.peers import marks
from bench.work import BATCH, NOOP
from herdsman import JobContext, handler

_mark = marks.marker(Path(os.environ[marks.MARKS]))
_batch = int(os.environ[BATCH])

if _batch == 1:

    @handler(NOOP)
    def noop(_job: JobContext) -> None:
        _mark()

else:

    @handler(NOOP, batch=_batch)
    def noop_together(jobs: list[JobContext]) -> list[None]:
        for _ in jobs:
            _mark()
        return [None] * len(jobs)
