"""A job that only takes its time."""

import time

from herdsman import JobContext, handler


@handler("flood")
def work(job: JobContext) -> object:
    time.sleep(job.payload["seconds"])
    return None
