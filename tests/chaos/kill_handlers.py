"""Jobs that stop at a step until the test lets them go on, and that write down what they did."""

import os
import time
from pathlib import Path

from herdsman import JobContext, handler

LANE = "KILL_LANE"
"""Names the one type of jobs that a worker of ours has, so that each has its own."""


@handler(os.environ.get(LANE, "lane"))
def work(job: JobContext) -> object:
    _write(job, "started")
    _stay(job, "started")
    job.progress(0.5, "half")
    _stay(job, "progress")
    if job.checkpoint() is not None:
        _write(job, "resumed")
    job.save_checkpoint({"half": True})
    _stay(job, "checkpoint")
    job.log("a line")
    _stay(job, "log")
    while job.payload.get("endless") and job.attempt == 1:
        _write(job, "works")
        time.sleep(0.01)
    time.sleep(job.payload.get("seconds", 0))
    _write(job, "finished")
    return {"twice": 2 * job.payload["number"]}


def _write(job: JobContext, word: str) -> None:
    line = f"{word} {job.job_id} {job.attempt} {job.token} {os.getpid()} {os.getppid()}\n"
    book = os.open(job.payload["book"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(book, line.encode())
    os.close(book)


def _stay(job: JobContext, step: str) -> None:
    if job.payload.get("stay") != step:
        return
    here = Path(job.payload["here"])
    here.touch()
    while not here.with_suffix(".go").exists():
        time.sleep(0.02)
