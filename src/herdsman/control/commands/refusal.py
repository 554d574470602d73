"""Why a claim no longer holds, in words that tell the worker what to do."""

from herdsman.core.errors import HerdsmanError, NotFound, StaleWrite
from herdsman.core.model import ClaimKey
from herdsman.db.connection import Tx
from herdsman.store import claims


def refusal(tx: Tx, key: ClaimKey, verb: str) -> HerdsmanError:
    now = claims.standing(tx, key.job_id)
    if now is None:
        return NotFound(f"there is no job {key.job_id!r}")
    return StaleWrite(
        f"claim {key.token} may not {verb} job {key.job_id!r}, which is {now.state} under claim {now.token}:"
        " stop working on it"
    )
