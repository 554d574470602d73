"""The HTTP face of a local herd, without a network: what a client sends is answered in memory."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from herdsman.errors import HerdsmanError, InvalidRequest, NotFound
from herdsman.jobs.wire import (
    AttemptsOut,
    CancelOut,
    EventOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobOut,
    JobsIn,
    JobsOut,
    LogOut,
    LogsOut,
    RetryIn,
    SubmittedManyOut,
    SubmittedOut,
)
from herdsman.states import JOB
from herdsman.testing.local_desk import EDIT_NOTHING, Desk
from herdsman.testing.memory_jobs import MemoryJob
from herdsman.wire import MEDIA_TYPE, problem, problem_of


class Door:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._of_job: Mapping[tuple[str, str], Callable[[str, httpx.Request], httpx.Response]] = {
            ("GET", ""): self._look,
            ("GET", "result"): self._result,
            ("GET", "attempts"): self._attempts,
            ("GET", "events"): self._history,
            ("GET", "logs"): self._logs,
            ("POST", "cancel"): self._cancel,
            ("POST", "retry"): self._retry,
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._answer(request)
        except HerdsmanError as error:
            return _problem(problem_of(error))
        except ValidationError as error:
            return _problem(problem_of(InvalidRequest(str(error))))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        match (request.method, *request.url.path.strip("/").split("/")):
            case ("POST", "jobs", "submit"):
                return self._submit(request)
            case ("POST", "jobs", "submit", "batch"):
                sent = JobsIn.model_validate_json(request.content).jobs
                done = self._desk.submit([each.new_job() for each in sent])
                jobs = tuple(SubmittedOut.of(each) for each in done)
                return _said(SubmittedManyOut(jobs=jobs), 201)
            case ("GET", "jobs"):
                return self._list(request.url.params)
            case ("GET", "events"):
                return self._events(request)
            case ("GET", "workers"):
                return httpx.Response(200, json={"workers": []})
            case (method, "jobs", job_id, *rest) if (method, "/".join(rest)) in self._of_job:
                return self._of_job[method, "/".join(rest)](job_id, request)
            case _:
                raise NotFound(f"a local herd has no {request.method} {request.url.path}")

    def _submit(self, request: httpx.Request) -> httpx.Response:
        (done,) = self._desk.submit([JobIn.model_validate_json(request.content).new_job()])
        return _said(SubmittedOut.of(done), 201 if done.created else 200)

    def _list(self, params: httpx.QueryParams) -> httpx.Response:
        """Newest first; the cursor is how many were shown before."""
        start, limit = int(params.get("after", "0")), int(params.get("limit", "50"))
        found = (
            self._desk.ledger.detail(job, self._desk.jobs.policy.max_attempts)
            for job in reversed(self._desk.jobs.all())
        )
        page = list(islice((job for job in found if _wanted(job, params)), start, start + limit + 1))
        jobs = tuple(JobOut(**dict(job)) for job in page[:limit])
        return _said(JobsOut(jobs=jobs, next=str(start + limit) if len(page) > limit else None))

    def _look(self, job_id: str, request: httpx.Request) -> httpx.Response:
        job = self._desk.detail(job_id)
        mark = f'"{job.version}-{job.progress}"'
        if request.headers.get("If-None-Match") == mark:
            return httpx.Response(304)
        return _said(job, headers={"ETag": mark})

    def _result(self, job_id: str, _: httpx.Request) -> httpx.Response:
        job = self._desk.find(job_id)
        if job.state not in JOB.terminal:
            return _problem(problem(409, "not-finished", f"job {job_id!r} is {job.state}"))
        return _said(self._desk.ledger.result(job))

    def _attempts(self, job_id: str, _: httpx.Request) -> httpx.Response:
        record = self._desk.ledger.record(self._desk.find(job_id))
        return _said(AttemptsOut(attempts=tuple(record.attempts.values())))

    def _history(self, job_id: str, _: httpx.Request) -> httpx.Response:
        record = self._desk.ledger.record(self._desk.find(job_id))
        return _said(EventsOut(events=tuple(record.events)))

    def _logs(self, job_id: str, request: httpx.Request) -> httpx.Response:
        job = self._desk.find(job_id)
        seen = json.loads(request.url.params.get("since", "{}"))
        pieces = tuple(_unseen(job, seen, self._desk.jobs.now()))
        shown = {str(token): len(lines) for token, lines in job.logs.items()}
        return _said(LogsOut(pieces=pieces, next=json.dumps(shown), ended=job.state in JOB.terminal))

    def _cancel(self, job_id: str, _: httpx.Request) -> httpx.Response:
        return _said(CancelOut(job_id=job_id, status=self._desk.cancel(job_id)), 202)

    def _retry(self, job_id: str, request: httpx.Request) -> httpx.Response:
        wanted = RetryIn.model_validate_json(request.content or b"{}")
        self._desk.retry(job_id, wanted.payload if wanted.edit else EDIT_NOTHING)
        return _said(JobOut(**dict(self._desk.detail(job_id))))

    def _events(self, request: httpx.Request) -> httpx.Response:
        """What has happened so far; then the word that nothing more comes, since nobody waits in a test."""
        params = request.url.params
        since = int(request.headers.get("Last-Event-ID") or params.get("since", "0"))
        news = [each for each in self._desk.ledger.events[since:] if _heard(each, params)]
        if not news:
            return httpx.Response(204)
        text = "".join(f"id: {each.id}\ndata: {each.model_dump_json()}\n\n" for each in news)
        return httpx.Response(200, content=text, headers={"Content-Type": "text/event-stream"})


def _wanted(job: JobDetail, params: httpx.QueryParams) -> bool:
    statuses = params.get_list("status")
    same = (
        params.get(name) in (None, getattr(job, name)) for name in ("type", "agent", "pool", "failure_class")
    )
    return all(same) and (not statuses or job.status in statuses) and params.get("tag") in (None, *job.tags)


def _heard(event: EventOut, params: httpx.QueryParams) -> bool:
    return params.get("kind") in (None, event.kind) and params.get("job_id") in (None, event.object_id)


def _unseen(job: MemoryJob, seen: dict[str, int], now: Any) -> Iterator[LogOut]:
    for token, lines in job.logs.items():
        first = seen.get(str(token), 0)
        if lines[first:]:
            yield LogOut(claim_token=token, first=first, ts=now, lines=tuple(lines[first:]))


def _said(body: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> httpx.Response:
    kind = {"Content-Type": "application/json", **(headers or {})}
    return httpx.Response(status, content=body.model_dump_json(), headers=kind)


def _problem(found: BaseModel) -> httpx.Response:
    return httpx.Response(
        getattr(found, "status", 500), content=found.model_dump_json(), headers={"Content-Type": MEDIA_TYPE}
    )
