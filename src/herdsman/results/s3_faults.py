"""What can go wrong with a bucket, in our own words."""

from collections.abc import Generator
from contextlib import contextmanager

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from herdsman.core.errors import HerdsmanError, ServiceUnavailable
from herdsman.results.references import missing

# A listing has no errors of its own: there only the text tells what the server said.
_NO_BUCKET = "NoSuchBucket"
_REFUSALS = ("403 Forbidden", "401 Unauthorized")
_LONGEST = 300


@contextmanager
def reached(place: str, what: str) -> Generator[None]:
    """`NotFound` for a file that is not there, `ServiceUnavailable` for whatever else happens."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise _in_our_words(error, place, what) from error


def _in_our_words(error: Exception, place: str, what: str) -> HerdsmanError:
    text = str(error)
    if _NO_BUCKET in text:
        return ServiceUnavailable(f"there is no bucket for {place}: make it, or correct RESULT_STORE")
    if isinstance(error, FileNotFoundError):
        return missing(what)
    if _is_refusal(error) or any(each in text for each in _REFUSALS):
        return ServiceUnavailable(
            f"{place} refused {what}: check RESULT_S3_KEY_ID, RESULT_S3_SECRET and the rights of that key"
        )
    return ServiceUnavailable(
        f"{place} did not take or give {what}: {_first_line(text) or type(error).__name__};"
        " check RESULT_STORE, RESULT_S3_ENDPOINT and RESULT_S3_REGION"
    )


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)


def _first_line(text: str) -> str:
    """What follows is for those who know the library."""
    return next(iter(text.splitlines()), "").partition("<?xml")[0].strip(" :")[:_LONGEST]
