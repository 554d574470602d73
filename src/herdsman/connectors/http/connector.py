"""Any service that takes a job by HTTP and tells later, or at once, what became of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import inf

import httpx

from herdsman.connectors.http import template
from herdsman.connectors.http.options import HttpOptions, Json, StatusOptions
from herdsman.connectors.http.template import JsonPath
from herdsman.connectors.http.wire import Answer, CallbackServer, Question, SyncCall, Wire
from herdsman.connectors.registry import Around
from herdsman.errors import HerdsmanError, ServiceRejected, ServiceUnavailable, SubmissionUnknown, TooLarge
from herdsman.jobs import protocol
from herdsman.jobs.model import Failure, FailureClass

MOST_TEXT = 2000
ANSWER = "answer"
"""Under which key a finished job carries the service's own words."""

_NO_MEMORY = ("out of memory", "outofmemory")
LONGEST_ID = 255
_NOBODY_AT_WORK = frozenset({425, 429, 503})
"""Statuses that say that the job was not taken; other errors of a server leave that open."""
MOST_FILES = 1000
_SHORT_CHECK_S = 1.5
"""A check while listening may not take as long as one that was asked for."""


@dataclass(slots=True)
class _Watch:
    """The job at hand, as far as we have heard of it."""

    external_id: str
    check_at: float
    last: protocol.Verdict


class HttpConnector:
    name = "http"

    def __init__(self, options: HttpOptions, around: Around) -> None:
        self._options = options
        self._clock = around.clock
        self._wire = Wire(options, around.clock)
        self._results = around.results
        self._watch: _Watch | None = None
        self._callbacks: CallbackServer | None = None
        self._call: SyncCall | None = None
        self._cancelled: str | None = None

    @property
    def capabilities(self) -> protocol.Capabilities:
        return protocol.Capabilities(
            listens=True,  # it asks at its own pace while it listens
            recovers=self._options.status.url is not None,
            cancels=self._options.cancel is not None,
            chooses_id=self._options.id is None,
        )

    def submit(self, job: protocol.ServiceJob, external_id: str) -> str:
        self._forget()
        values = values_of(job, external_id)
        if self._options.callback is not None:
            self._callbacks = CallbackServer(self._options.callback)
            values["callback_url"] = self._callbacks.url
        question, given = question_of(self._options, values), external_id
        try:
            if self._options.sync:
                patient = replace(question, timeout_s=self._options.sync_timeout_s)
                self._call = SyncCall(external_id, self._wire.ask, patient)
                self._call.begin(timedelta(seconds=self._options.timeout_s))
            else:
                given = accepted(self._wire.ask(question), self._options, external_id)
        except SubmissionUnknown:
            self._follow(external_id)  # it may be there, and tell us so
            raise
        except HerdsmanError:
            self._forget()
            raise
        self._follow(given)
        return given

    def attach(self, job: protocol.ServiceJob, external_id: str) -> None:  # noqa: ARG002  the id says enough
        self._forget()
        self._follow(external_id)

    def listen(self, external_id: str, silence: timedelta) -> protocol.Heard | None:
        if self._options.sync:
            if self._call is None or self._call.external_id != external_id:
                self._clock.sleep(silence)
                return None
            return protocol.Ended() if self._call.wait(silence) else None
        watch, clock = self._watch, self._clock
        if watch is None or watch.external_id != external_id:
            clock.sleep(silence)
            return None
        until = clock.monotonic() + silence.total_seconds()
        while True:
            if watch.check_at == inf and not isinstance(watch.last, protocol.Working):
                return protocol.Ended()  # a check has taken the news before we could hear them
            # What was posted to us, or what a check shows, whichever comes first.
            left = timedelta(seconds=max(0.0, min(until, watch.check_at) - clock.monotonic()))
            posted = heard = None
            if self._callbacks is None:
                clock.sleep(left)
            elif (posted := self._callbacks.wait(left)) is not None:
                heard = self._take_news(posted)
            if posted is None and clock.monotonic() >= watch.check_at:
                heard = self._poll(watch)
            if heard is not None or clock.monotonic() >= until:
                return heard

    def check(self, external_id: str) -> protocol.Verdict:
        if self._options.sync:
            if self._call is None or self._call.external_id != external_id:
                return protocol.Unknown("no call for it is under way here")
            outcome = self._call.outcome
            return protocol.Working() if outcome is None else judge_call(outcome, self._options)
        verdict = self._observe(external_id, self._options.timeout_s)
        if external_id == self._cancelled and isinstance(verdict, protocol.Unknown | protocol.Broken):
            return stopped("it was asked to stop")
        return verdict

    def fetch(self, job: protocol.ServiceJob, external_id: str, finished: protocol.Finished) -> object:
        """The value alone; with files, `{"result": ..., "files": [...]}`."""
        options, wire = self._options, self._wire
        wanted, values = options.result, {**values_of(job, external_id), "id": external_id}
        # Addresses in the document are relative to where it came from.
        base = template.fill_url(options.status.url or options.submit.url, {"callback_url": "", **values})
        document = finished.outputs.get(ANSWER)
        if wanted.url is not None:
            place = wanted.url_path
            if place is None:
                base = template.fill_url(wanted.url, values)
            else:
                base = _joined(base, place.value_or_none(document), place.text)
            answer = wire.ask(Question(method="GET", url=base))
            if answer.status in options.retry_status:
                raise ServiceUnavailable(str(answer))
            if not answer.is_good:
                raise ServiceRejected(f"the result cannot be had: {answer}", retry=True)
            try:
                document = answer.document()
            except ValueError as error:
                raise ServiceRejected(f"the result cannot be read: {error}", retry=True) from error
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
                files.append(asdict(self._results.for_agent(job.agent).put(job.job_id, name, content)))
        # The whole answer may hold addresses that are signed anew each time: only a part that was asked for is kept.
        return {"files": files} if wanted.path is None else {"result": value, "files": files}

    def cancel(self, external_id: str) -> None:
        options = self._options.cancel
        if options is None:
            return
        url = template.fill_url(options.url, {"id": external_id})
        answer = self._wire.ask(Question(method=options.method, url=url, follow=False))
        if answer.status in self._options.retry_status:
            raise ServiceUnavailable(str(answer))
        if answer.status in {401, 403}:
            raise refused(answer, self._options)
        if answer.is_good:
            self._cancelled = external_id

    def fitness(self) -> protocol.Fitness:
        """Without option health anything that answers is well."""
        url = self._options.health
        if url is None:
            scheme, _, rest = self._options.submit.url.partition("://")
            host = rest.partition("/")[0]
            if not host or "{" in host:
                return protocol.Fitness()
            url = f"{scheme}://{host}/"
        try:
            answer = self._wire.ask(Question(method="GET", url=url))
        except HerdsmanError as error:
            return protocol.Fitness(fault=str(error))
        if self._options.health is not None and not answer.is_good:
            return protocol.Fitness(fault=str(answer))
        return protocol.Fitness()

    def close(self) -> None:
        self._forget()
        self._wire.close()

    def _follow(self, external_id: str) -> None:
        polls = self._options.status.url is not None
        self._watch = _Watch(external_id, self._clock.monotonic() if polls else inf, protocol.Working())

    def _forget(self) -> None:
        self._watch = self._cancelled = None
        if self._callbacks is not None:
            self._callbacks.close()
            self._callbacks = None
        if self._call is not None:
            self._call.cut()
            self._call = None

    def _take_news(self, posted: object) -> protocol.Heard | None:
        assert self._watch is not None
        try:
            verdict = verdict_of(posted, self._options.status)
        except ServiceUnavailable:
            return None
        if isinstance(self._watch.last, protocol.Working):
            self._watch.last = verdict  # what comes after the end changes nothing
        return verdict if isinstance(verdict, protocol.Working) else protocol.Ended()

    def _poll(self, watch: _Watch) -> protocol.Heard | None:
        """News, if there are any. An unknown job is none: a young one may not be listed yet."""
        try:
            verdict = self._observe(watch.external_id, min(_SHORT_CHECK_S, self._options.timeout_s))
        except (ServiceUnavailable, ServiceRejected, TooLarge):
            verdict = None
        pace = max(self._options.status.interval_s, self._wire.waits_s())
        watch.check_at = self._clock.monotonic() + pace
        if isinstance(verdict, protocol.Finished | protocol.Broken):
            return protocol.Ended()
        news = verdict if isinstance(verdict, protocol.Working) and verdict != watch.last else None
        watch.last = news or watch.last
        return news

    def _observe(self, external_id: str, timeout_s: float) -> protocol.Verdict:
        if self._options.status.url is None:
            # Where the service only calls back, we know what it said, and it cannot be asked.
            if self._watch is None or self._watch.external_id != external_id:
                return protocol.Unknown("nobody here waits for a call about it")
            while self._callbacks is not None and (posted := self._callbacks.wait(timedelta(0))) is not None:
                self._take_news(posted)
            return self._watch.last
        url = template.fill_url(self._options.status.url, {"id": external_id})
        answer = self._wire.ask(Question(method="GET", url=url, timeout_s=timeout_s))
        if answer.status in self._options.not_found:
            return protocol.Unknown(f"{answer.asked} answered {answer.status}")
        if not answer.is_good:
            hint = "; see option headers" if answer.status in {401, 403} else ""
            raise ServiceUnavailable(f"{answer}{hint}")
        try:
            return verdict_of(answer.document(), self._options.status)
        except ValueError as error:  # an answer that is not one of this service is no verdict
            raise ServiceUnavailable(str(error)) from error


def verdict_of(document: object, options: StatusOptions) -> protocol.Verdict:
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
    progress = _number(document, options.progress)
    return protocol.Working(
        done=None if progress is None else min(1.0, max(0.0, progress / options.progress_scale)),
        note=str(status)[:200],
        position=0 if _is_one_of(status, options.running) else None,
    )


def finished(document: object, options: StatusOptions) -> protocol.Finished:
    seconds = _number(document, options.seconds)
    return protocol.Finished(outputs={ANSWER: document}, seconds=seconds if seconds is None else max(0.0, seconds))


def broken(error: str, kind: FailureClass = FailureClass.JOB_ERROR) -> protocol.Broken:
    lacks_memory = any(each in error.lower() for each in _NO_MEMORY)
    return protocol.Broken(
        failure=Failure(kind=FailureClass.OUT_OF_MEMORY if lacks_memory else kind, error=error[:MOST_TEXT])
    )


def stopped(error: str) -> protocol.Broken:
    return protocol.Broken(failure=Failure(kind=FailureClass.INTERRUPTED, error=error[:MOST_TEXT]), cancelled=True)


def _number(document: object, path: JsonPath | None) -> float | None:
    found = None if path is None else path.value_or_none(document)
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return None
    return float(found)


def _is_one_of(status: object, values: tuple[Json, ...]) -> bool:
    """As JSON has it: true is not 1."""
    return any(status == each and isinstance(status, bool) == isinstance(each, bool) for each in values)


def values_of(job: protocol.ServiceJob, external_id: str) -> dict[str, object]:
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
            raise SubmissionUnknown(f"{answer.asked} answered a page for people, not this service: {answer.said()}")
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
    said = str(answer)
    if answer.status in options.retry_status:
        kind = ServiceUnavailable if answer.status in _NOBODY_AT_WORK else SubmissionUnknown
        return kind(said)
    if answer.status in {401, 403}:
        return ServiceRejected(f"{said}; the service wants a key: see option headers", retry=True)
    if 300 <= answer.status < 400:
        where = answer.headers.get("location", "elsewhere")[:200]
        return ServiceRejected(f"{answer.asked} sends us to {where}; write that into option submit.url", retry=True)
    return ServiceRejected(said, retry=answer.status >= 500)


def judge_call(outcome: Answer | HerdsmanError, options: HttpOptions) -> protocol.Verdict:
    """The answer to a call is the end of the job, one way or the other."""
    if isinstance(outcome, Answer) and outcome.is_good:
        try:
            return finished(outcome.document(), options.status)
        except ValueError as error:
            return broken(str(error), FailureClass.INFRASTRUCTURE)
    error = refused(outcome, options) if isinstance(outcome, Answer) else outcome
    # The job is to blame where the service says that it is wrong, and for nothing else.
    own = isinstance(error, TooLarge) or (isinstance(error, ServiceRejected) and not error.retry)
    return broken(str(error), FailureClass.USER_ERROR if own else FailureClass.INFRASTRUCTURE)


def _joined(base: str, found: object, option: object) -> str:
    if not isinstance(found, str):
        raise ServiceRejected(f"{str(found)[:100]!r} at {option} in the answer is no address", retry=True)
    try:
        return str(httpx.URL(base).join(found))
    except httpx.InvalidURL as error:
        raise ServiceRejected(f"{found[:100]!r} at {option} in the answer is no address: {error}") from error
