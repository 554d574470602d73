"""Brings the result of a finished job home: its value, and its files into the result store."""

from collections.abc import Mapping
from dataclasses import asdict

import httpx

from herdsman.connectors.http import template
from herdsman.connectors.http.options import HttpOptions
from herdsman.connectors.http.wire import Answer, Question, Wire
from herdsman.core.errors import ServiceRejected, ServiceUnavailable
from herdsman.core.service import ServiceJob
from herdsman.ports import ResultStore

MOST_FILES = 1000


class Fetching:
    def __init__(self, options: HttpOptions, wire: Wire, results: ResultStore) -> None:
        self._options = options
        self._wire = wire
        self._results = results

    def result(self, job: ServiceJob, answer: object, values: Mapping[str, object]) -> object:
        """The value alone; with files, `{"result": ..., "files": [...]}`."""
        options = self._options.result
        base, document = self._document(answer, values)
        value = document if options.path is None else _value(document, self._options)
        if options.files is None:
            return value
        files = [self._file(job, base, each) for each in _urls(document, self._options)]
        # The whole answer may hold addresses that are signed anew each time: only a part that was asked for is kept.
        return {"files": files} if options.path is None else {"result": value, "files": files}

    def _document(self, answer: object, values: Mapping[str, object]) -> tuple[str, object]:
        """What the result is read from, and the address that its own addresses are relative to."""
        options = self._options
        base = template.fill_url(options.status.url or options.submit.url, {"callback_url": "", **values})
        if options.result.url is None:
            return base, answer
        url = self._result_url(answer, base, values)
        got = self._wire.ask(Question(method="GET", url=url))
        return url, _read(got, options)

    def _result_url(self, answer: object, base: str, values: Mapping[str, object]) -> str:
        options = self._options.result
        if options.url_path is None:
            return template.fill_url(options.url or "", values)
        found = options.url_path.value_or_none(answer)
        return _joined(base, found, options.url_path.text)

    def _file(self, job: ServiceJob, base: str, found: object) -> dict[str, object]:
        url = _joined(base, found, self._options.result.files)
        name = httpx.URL(url).path.rpartition("/")[2] or "file"
        with self._wire.download(url) as content:
            return asdict(self._results.for_agent(job.agent).put(job.job_id, name, content))


def _value(document: object, options: HttpOptions) -> object:
    assert options.result.path is not None
    try:
        return options.result.path.value(document)
    except LookupError as error:
        raise ServiceRejected(
            f"the job has ended, but {error} in the answer: see result.path", retry=True
        ) from error


def _urls(document: object, options: HttpOptions) -> list[object]:
    assert options.result.files is not None
    found = options.result.files.all(document)
    if len(found) > MOST_FILES:
        raise ServiceRejected(f"the job has {len(found)} files; {MOST_FILES} are the most that are fetched")
    return found


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
