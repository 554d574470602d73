"""Where a page of a list ends and the next one begins, as a text that people pass on."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime

from sqlalchemy import Column, ColumnElement, and_, or_

from herdsman.errors import InvalidRequest
from herdsman.ids import check_name

LARGEST_PAGE = 200


def cursor(created_at: datetime, name: str) -> str:
    """It names a row, so that rows that come and go do not shift the pages."""
    return urlsafe_b64encode(f"{created_at.isoformat()}|{name}".encode()).decode()


def beyond(created: Column[datetime], named: Column[str], after: str) -> ColumnElement[bool]:
    """The rows behind the cursor, of a list that is sorted by these columns, the newest first."""
    try:
        when, _, name = urlsafe_b64decode(after.encode()).decode().partition("|")
        created_at = datetime.fromisoformat(when).astimezone(UTC)
        check_name("id", name, 128)
    except (NotBase64, ValueError, OverflowError, InvalidRequest) as error:
        raise InvalidRequest(f"the cursor {after!r} is not one that we gave out") from error
    # The first condition says nothing new, but it is the one that every database begins its index scan at.
    return and_(created <= created_at, or_(created < created_at, named < name))


def check_limit(limit: int) -> None:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InvalidRequest(f"limit is {limit}: it must be from 1 to {LARGEST_PAGE}")
