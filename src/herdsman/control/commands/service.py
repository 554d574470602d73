"""What a worker says of its job's place on an external service."""

import re
from collections.abc import Mapping

from herdsman.control.commands.refusal import refusal
from herdsman.control.services import Services
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import ClaimKey, WorkerId
from herdsman.core.service import ServiceMark
from herdsman.db.connection import Tx
from herdsman.db.schema import SERVICE
from herdsman.store import hints, service

LONGEST_EXTERNAL_ID = 255
_PRINTABLE = re.compile(r"[ -~]+")


def mark_service(
    services: Services, key: ClaimKey, mark: ServiceMark, *, worker: WorkerId | None = None
) -> Mapping[str, str]:
    """Committed when this returns; what stands there now, as text, with empty text for what is not known (S3-04)."""
    _check(mark.external_id)
    return services.database.transact(lambda tx: _mark(tx, key, mark, worker))


def _check(external_id: str) -> None:
    if not 0 < len(external_id) <= LONGEST_EXTERNAL_ID:
        raise InvalidRequest(
            f"external_id has {len(external_id)} characters: it must have from 1 to {LONGEST_EXTERNAL_ID}"
        )
    if not _PRINTABLE.fullmatch(external_id):
        raise InvalidRequest(
            f"external_id is {external_id!r}: it must hold only printable ASCII characters; encode the service's own id"
        )


def _mark(tx: Tx, key: ClaimKey, mark: ServiceMark, worker: WorkerId | None) -> Mapping[str, str]:
    if not service.mark(tx, key, mark, worker):
        raise refusal(tx, key, "mark")
    known = hints.look_up(tx, [key.job_id])[key.job_id].service
    return {name: known.get(name, "") for name in SERVICE}
