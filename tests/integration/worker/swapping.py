"""A handler whose model fills a GPU: who holds its memory, and beside whom, is written into a file."""

import fcntl
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from herdsman import JobContext, Setup, handler

LOADED: list[str | None] = []


def load(setup: Setup) -> None:
    """As on a GPU: memory is free when the processes that hold it are gone, and not before."""
    if setup.model == "broken":
        raise OSError("the weights are gone")
    helper = subprocess.Popen(["sleep", "600"])
    with Path(os.environ["LEDGER"]).open("a+") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)
        ledger.seek(0)
        holders = [pid for line in ledger for pid in json.loads(line)["holders"]]
        entry = {
            "model": setup.model,
            "revision": setup.revision,
            "holders": [os.getpid(), helper.pid],
            "beside": [pid for pid in holders if _lives(pid)],
        }
        ledger.write(json.dumps(entry) + "\n")
    time.sleep(0.2)  # a load takes its time
    LOADED.append(setup.model)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZXx"
    except OSError:
        return False


@handler("infer", setup=load)
def infer(job: JobContext) -> object:
    time.sleep(job.payload["seconds"])
    return _seen(job)


@handler("infer_many", batch=4, linger_ms=20, setup=load)
def infer_many(jobs: list[JobContext]) -> object:
    time.sleep(0.01)
    return [_seen(job) for job in jobs]


def _seen(job: JobContext) -> dict[str, Any]:
    told = {name: value for name, value in os.environ.items() if name.startswith("HERDSMAN_")}
    return {"loaded": LOADED, "model": job.model, "adapter": job.adapter, "told": told}
