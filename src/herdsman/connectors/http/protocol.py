"""What is sent to a service and what its answers mean: handing over, looking, and fetching the result."""

import json
from collections.abc import Mapping
from dataclasses import asdict

import httpx

from herdsman.connectors.http import template
from herdsman.connectors.http.options import HttpOptions, Json, StatusOptions
from herdsman.connectors.http.template import JsonPath
from herdsman.connectors.http.wire import Answer, Question, Wire
from herdsman.errors import HerdsmanError, ServiceRejected, ServiceUnavailable, SubmissionUnknown, TooLarge
from herdsman.jobs.model import Failure, FailureClass
from herdsman.jobs.protocol import Broken, Finished, ServiceJob, Unknown, Verdict, Working
from herdsman.ports import ResultStore

MOST_TEXT = 2000
ANSWER = "answer"
"""Under which key a finished job carries the service's own words."""

_NO_MEMORY = ("out of memory", "outofmemory")
LONGEST_ID = 255
_NOBODY_AT_WORK = frozenset({425, 429, 503})
"""Statuses that say that the job was not taken; other errors of a server leave that open."""
MOST_FILES = 1000


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
        error = None if options.error is None else options.error.value_or_none(document)
        said = "" if error is None else str(error)
        return broken(said or f"the service says {status!r}, and no more")
    if _is_one_of(status, options.cancelled):
        return stopped(f"the service says {status!r}")
    return Working(
        done=progress_of(document, options),
        note=str(status)[:200],
        position=0 if _is_one_of(status, options.running) else None,
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


def _number(document: object, path: JsonPath | None) -> float | None:
    found = None if path is None else path.value_or_none(document)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None
    return float(found)


def _is_one_of(status: object, values: tuple[Json, ...]) -> bool:
    """As JSON has it: true is not 1."""
    return any(status == each and isinstance(status, bool) == isinstance(each, bool) for each in values)


def values_of(job: ServiceJob, external_id: str) -> dict[str, object]:
    known = asdict(job)
    return {"external_id": external_id, **{each: known[each] for each in template.JOB if each in known}}


def question_of(options: HttpOptions, values: Mapping[str, object]) -> Question:
    submit = options.submit
    own = {name: template.fill_text(text.get_secret_value(), values) for name, text in submit.headers.items()}
    return Question(
        method=submit.method,
        url=template.fill_url(submit.url, values),
        headers={"Content-Type": "application/json", "Idempotency-Key": str(values["external_id"]), **own},
        content=json.dumps(template.fill(submit.body, values)).encode(),
        unclear=SubmissionUnknown,
        follow=False,
    )


def accepted(answer: Answer, options: HttpOptions, external_id: str) -> str:
    """The id under which the service has it, or why it has not."""
    if not answer.is_good:
        raise refused(answer, options)
    if options.id is None:
        if "html" in answer.headers.get("content-type", ""):
            raise SubmissionUnknown(
                f"{answer.asked} answered a page for people, not this service: {answer.said()}"
            )
        return external_id
    try:
        found = options.id.value(answer.document())
    except (LookupError, ValueError) as error:
        raise SubmissionUnknown(f"the answer to {answer.asked} holds no id: {error}") from error
    if isinstance(found, str | int) and not isinstance(found, bool):
        text = str(found)
        if 0 < len(text) <= LONGEST_ID and text.isprintable():
            return text
    raise SubmissionUnknown(f"the id in the answer to {answer.asked} is {str(found)[:100]!r}, which is no id")


def refused(answer: Answer, options: HttpOptions) -> ServiceUnavailable | ServiceRejected:
    said = f"{answer.asked} answered {answer.status}: {answer.said()}"
    if answer.status in options.retry_status:
        kind = ServiceUnavailable if answer.status in _NOBODY_AT_WORK else SubmissionUnknown
        return kind(said)
    if answer.status in {401, 403}:
        return ServiceRejected(f"{said}; the service wants a key: see option headers", retry=True)
    if 300 <= answer.status < 400:
        where = answer.headers.get("location", "elsewhere")[:200]
        return ServiceRejected(
            f"{answer.asked} sends us to {where}; write that into option submit.url", retry=True
        )
    return ServiceRejected(said, retry=answer.status >= 500)


def look(wire: Wire, options: HttpOptions, external_id: str, timeout_s: float) -> Verdict:
    """An answer that is not one of this service is no verdict."""
    assert options.status.url is not None
    url = template.fill_url(options.status.url, {"id": external_id})
    answer = wire.ask(Question(method="GET", url=url, timeout_s=timeout_s))
    if answer.status in options.not_found:
        return Unknown(f"{answer.asked} answered {answer.status}")
    if not answer.is_good:
        hint = "; see option headers" if answer.status in {401, 403} else ""
        raise ServiceUnavailable(f"{answer.asked} answered {answer.status}: {answer.said()}{hint}")
    try:
        return verdict_of(answer.document(), options.status)
    except ValueError as error:
        raise ServiceUnavailable(str(error)) from error


def judge_call(outcome: Answer | HerdsmanError, options: HttpOptions) -> Verdict:
    """The answer to a call is the end of the job, one way or the other."""
    if not isinstance(outcome, Answer):
        return _failed(outcome)
    if not outcome.is_good:
        return _failed(refused(outcome, options))
    try:
        return finished(outcome.document(), options.status)
    except ValueError as error:
        return broken(str(error), FailureClass.INFRASTRUCTURE)


def _failed(error: HerdsmanError) -> Broken:
    """The job is to blame where the service says that it is wrong, and for nothing else."""
    own = isinstance(error, TooLarge) or (isinstance(error, ServiceRejected) and not error.retry)
    return broken(str(error), FailureClass.USER_ERROR if own else FailureClass.INFRASTRUCTURE)


def fetch(
    wire: Wire,
    options: HttpOptions,
    results: ResultStore,
    job: ServiceJob,
    *,
    answer: object,
    external_id: str,
) -> object:
    """The value alone; with files, `{"result": ..., "files": [...]}`."""
    wanted, values = options.result, {**values_of(job, external_id), "id": external_id}
    # Addresses in the document are relative to where it came from.
    base = template.fill_url(options.status.url or options.submit.url, {"callback_url": "", **values})
    document = answer
    if wanted.url is not None:
        place = wanted.url_path
        if place is None:
            base = template.fill_url(wanted.url, values)
        else:
            base = _joined(base, place.value_or_none(answer), place.text)
        document = _read(wire.ask(Question(method="GET", url=base)), options)
    try:
        value = document if wanted.path is None else wanted.path.value(document)
    except LookupError as error:
        said = f"the job has ended, but {error} in the answer: see result.path"
        raise ServiceRejected(said, retry=True) from error
    if wanted.files is None:
        return value
    found = wanted.files.all(document)
    if len(found) > MOST_FILES:
        raise ServiceRejected(f"the job has {len(found)} files; {MOST_FILES} are the most that are fetched")
    files: list[dict[str, object]] = []
    for each in found:
        url = _joined(base, each, wanted.files)
        name = httpx.URL(url).path.rpartition("/")[2] or "file"
        with wire.download(url) as content:
            files.append(asdict(results.for_agent(job.agent).put(job.job_id, name, content)))
    # The whole answer may hold addresses that are signed anew each time: only a part that was asked for is kept.
    return {"files": files} if wanted.path is None else {"result": value, "files": files}


def _read(answer: Answer, options: HttpOptions) -> object:
    said = f"{answer.asked} answered {answer.status}: {answer.said()}"
    if answer.status in options.retry_status:
        raise ServiceUnavailable(said)
    if not answer.is_good:
        raise ServiceRejected(f"the result cannot be had: {said}", retry=True)
    try:
        return answer.document()
    except ValueError as error:
        raise ServiceRejected(f"the result cannot be read: {error}", retry=True) from error


def _joined(base: str, found: object, option: object) -> str:
    if not isinstance(found, str):
        raise ServiceRejected(f"{str(found)[:100]!r} at {option} in the answer is no address", retry=True)
    try:
        return str(httpx.URL(base).join(found))
    except httpx.InvalidURL as error:
        raise ServiceRejected(f"{found[:100]!r} at {option} in the answer is no address: {error}") from error
