"""A handler that is at work for as long as a test wants, and whose own child loses its parent meanwhile."""

import os
import time
from pathlib import Path

from herdsman import JobContext, handler


@handler("lingers")
def lingers(job: JobContext) -> object:
    _orphan()
    job.progress(0.5, "waits")
    while not Path(job.payload["file"]).exists():
        time.sleep(0.02)
    return "over"


def _orphan() -> None:
    """Ends at once, and is nobody's child by then but the supervisor's."""
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.1)
        os._exit(0)
    os.wait()
