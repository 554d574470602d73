"""What an answer of a service means: pure, from a document to a verdict."""

from herdsman.connectors.http.options import Json, StatusOptions
from herdsman.connectors.http.paths import JsonPath
from herdsman.core.errors import ServiceUnavailable
from herdsman.core.model import Failure
from herdsman.core.retry import FailureClass
from herdsman.core.service import Broken, Finished, Verdict, Working

MOST_TEXT = 2000
ANSWER = "answer"
"""Under which key a finished job carries the service's own words."""

_NO_MEMORY = ("out of memory", "outofmemory")


def verdict_of(document: object, options: StatusOptions) -> Verdict:
    """A document without a status is none of this service; where no status is asked for, any is the end."""
    if options.path is None:
        return finished(document, options)
    try:
        status = options.path.value(document)
    except LookupError as error:
        raise ServiceUnavailable(f"the service's answer makes no sense: {error} in it") from error
    if _is_one_of(status, options.done):
        return finished(document, options)
    if _is_one_of(status, options.failed):
        return broken(_error_text(document, options) or f"the service says {status!r}, and no more")
    if _is_one_of(status, options.cancelled):
        return stopped(f"the service says {status!r}")
    return Working(
        done=progress_of(document, options), note=str(status)[:200], position=_position(status, options)
    )


def finished(document: object, options: StatusOptions) -> Finished:
    seconds = _number(document, options.seconds)
    return Finished(outputs={ANSWER: document}, seconds=seconds if seconds is None else max(0.0, seconds))


def broken(error: str, kind: FailureClass = FailureClass.JOB_ERROR) -> Broken:
    lacks_memory = any(each in error.lower() for each in _NO_MEMORY)
    return Broken(
        failure=Failure(kind=FailureClass.OUT_OF_MEMORY if lacks_memory else kind, error=error[:MOST_TEXT])
    )


def stopped(error: str) -> Broken:
    return Broken(failure=Failure(kind=FailureClass.INTERRUPTED, error=error[:MOST_TEXT]), cancelled=True)


def progress_of(document: object, options: StatusOptions) -> float | None:
    found = _number(document, options.progress)
    return None if found is None else min(1.0, max(0.0, found / options.progress_scale))


def _position(status: object, options: StatusOptions) -> int | None:
    return 0 if _is_one_of(status, options.running) else None


def _error_text(document: object, options: StatusOptions) -> str:
    found = None if options.error is None else options.error.value_or_none(document)
    return "" if found is None else str(found)


def _number(document: object, path: JsonPath | None) -> float | None:
    found = None if path is None else path.value_or_none(document)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None
    return float(found)


def _is_one_of(status: object, values: tuple[Json, ...]) -> bool:
    """As JSON has it: true is not 1."""
    return any(status == each and isinstance(status, bool) == isinstance(each, bool) for each in values)
