"""Handlers that do nothing but say when they began, loaded by a real worker; BENCH_BATCH is how many jobs at once."""

import os
from pathlib import Path

from bench.peers import marks
from herdsman import JobContext, handler

NOOP = "noop"
MARKS, BATCH = "BENCH_MARKS", "BENCH_BATCH"

_mark = marks.marker(Path(os.environ[MARKS]))
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
