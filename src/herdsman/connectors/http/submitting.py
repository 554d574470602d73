"""Handing a job over: what is sent, and what the answer to it means. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict

from herdsman.connectors.http import template
from herdsman.connectors.http.options import HttpOptions
from herdsman.connectors.http.wire import Answer, Question
from herdsman.core.errors import ServiceRejected, ServiceUnavailable, SubmissionUnknown
from herdsman.core.service import ServiceJob

LONGEST_ID = 255
_NOBODY_AT_WORK = frozenset({425, 429, 503})
"""Statuses that say that the job was not taken; other errors of a server leave that open."""


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
    return _plain_id(found, answer)


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


def _plain_id(found: object, answer: Answer) -> str:
    if isinstance(found, str | int) and not isinstance(found, bool):
        text = str(found)
        if 0 < len(text) <= LONGEST_ID and text.isprintable():
            return text
    raise SubmissionUnknown(f"the id in the answer to {answer.asked} is {str(found)[:100]!r}, which is no id")
