"""What wall clocks show in other places."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import structlog

from herdsman.core.errors import InvalidRequest

log = structlog.get_logger()

USUAL = "UTC"


def check_zone(name: str) -> None:
    if _zone(name) is None:
        raise InvalidRequest(f"timezone is {name!r}: use a name such as Europe/Berlin or UTC")


def local_times(zones: Iterable[str], now: datetime) -> Mapping[str, datetime]:
    """Always with `UTC`. A zone that this machine does not know is taken for UTC, and said."""
    return {name: now.astimezone(_known(name)) for name in {USUAL, *zones}}


def _known(name: str) -> tzinfo:
    zone = _zone(name)
    if zone is None:
        log.warning("zone.unknown", zone=name)
    return zone or UTC


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, or a folder of names
        return None
