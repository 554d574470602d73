"""A handler in Python: it says how far it is, and goes on where an earlier attempt was stopped."""

import time

from herdsman import JobContext, UserError, handler


@handler("count")
def count(job: JobContext) -> object:
    """Adds up the numbers to `to`, one each `seconds`; an attempt begins behind what the last one has saved."""
    to = job.payload.get("to", 10)
    if not isinstance(to, int) or to < 1:
        raise UserError(f"to is {to!r}: it must be a number from 1 on")
    saved = job.checkpoint() or {"number": 0, "sum": 0}
    number, total = saved["number"], saved["sum"]
    while number < to:
        job.raise_if_cancelled()
        time.sleep(job.payload.get("seconds", 0.05))
        number += 1
        total += number
        print(f"{number} makes {total}")
        job.progress(number / to, f"{number} of {to}")
        job.save_checkpoint({"number": number, "sum": total})
    return {"sum": total, "attempt": job.attempt}
