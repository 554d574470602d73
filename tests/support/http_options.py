"""The options of a few kinds of services for the http connector, and how it is opened with them."""

from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta

from herdsman.connectors.http import HttpConnector, open_connector
from herdsman.connectors.registry import Around
from herdsman.jobs.protocol import ServiceJob
from herdsman.ports import SystemClock
from tests.support.memory_results import MemoryResults

NOBODY = "http://127.0.0.1:9"
QUICK = timedelta(milliseconds=200)
STATUS = {
    "path": "$.state",
    "done": ["done"],
    "failed": ["failed"],
    "cancelled": ["cancelled"],
    "queued": ["queued"],
    "running": ["running"],
    "error": "$.error.message",
    "progress": "$.percent",
    "progress_scale": 100,
    "seconds": "$.seconds",
    "interval_s": 0.05,
}


def polled(url: str) -> dict[str, object]:
    return {
        "submit": {"url": f"{url}/jobs"},
        "status": {**STATUS, "url": f"{url}/jobs/{{id}}"},
        "result": {"path": "$.output.text", "files": "$.output.files"},
        "cancel": {"url": f"{url}/jobs/{{id}}/cancel"},
    }


def numbered(url: str) -> dict[str, object]:
    """The service gives its own ids, and the result has an address of its own."""
    result = {"url": f"{url}/jobs/{{id}}/result", "path": "$.text"}
    return {**polled(url), "submit": {"url": f"{url}/numbered"}, "id": "$.id", "result": result}


def sync(url: str) -> dict[str, object]:
    return {"submit": {"url": f"{url}/sync"}, "sync": True, "result": {"path": "$.text"}}


def called_back(url: str) -> dict[str, object]:
    body = {"do": "{payload.do}", "callback": "{callback_url}"}
    return {
        "submit": {"url": f"{url}/jobs", "json": body},
        "status": STATUS,
        "callback": {},
        "result": {"path": "$.output.text"},
        "cancel": {"url": f"{url}/jobs/{{id}}/cancel"},
    }


def both(url: str) -> dict[str, object]:
    return {**called_back(url), "status": {**STATUS, "url": f"{url}/jobs/{{id}}", "interval_s": 30}}


def around() -> Around:
    return Around(clock=SystemClock(), results=MemoryResults())


def a_job(**payload: object) -> ServiceJob:
    return ServiceJob(job_id="job-1", type="render", payload=payload)


@contextmanager
def opened(options: Mapping[str, object]) -> Generator[HttpConnector]:
    with closing(open_connector(options, around())) as connector:
        yield connector
