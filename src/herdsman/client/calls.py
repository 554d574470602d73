"""Every request of people and their programs, one function each: its method, path, parameters, body and reply.

Those of a worker stand in `queue`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from urllib.parse import quote

from pydantic import BaseModel

from herdsman.client.call import Answer, Call, M, built, encoded, get, named, nothing, post, refusal
from herdsman.explain.wire import EtaOut, TimelineOut, WhyOut
from herdsman.fleet.wire import (
    CostOut,
    CycleOut,
    DecisionOut,
    DecisionsOut,
    DrainedOut,
    FleetOut,
    LeaderOut,
    MeOut,
    OverviewOut,
    ShadowReportOut,
    WorkerOut,
    WorkersOut,
)
from herdsman.jobs.wire import (
    AttemptsOut,
    BulkOut,
    CancelOut,
    EventsOut,
    FailuresOut,
    JobDetail,
    JobIdsIn,
    JobIn,
    JobsIn,
    JobsOut,
    LogsOut,
    RequeueIn,
    ResultOut,
    RetryIn,
    SubmittedManyOut,
    SubmittedOut,
)
from herdsman.leases.wire import (
    BeatIn,
    GpuOut,
    GpusIn,
    GpusOut,
    KeptOut,
    LeaseAnswer,
    LeaseIn,
    LeaseOut,
    LeasesOut,
    TakenOut,
)
from herdsman.limits.wire import (
    DrainIn,
    EditionOut,
    HistoryOut,
    PauseIn,
    PauseOut,
    PausesOut,
    PolicyIn,
    PolicyOut,
    ResumedOut,
    ScopeIn,
)
from herdsman.pools.wire import EvictIn, PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn

NOT_FINISHED = "urn:herdsman:not-finished"
LONGEST_CYCLE = timedelta(seconds=60)
"""Another replica may have to be asked, and a cycle takes its time."""


def _by_id(how: Callable[[str, type[M]], Call[M]], path: str, reply: type[M]) -> Callable[[str], Call[M]]:
    """A request about one thing, whose id stands in the path."""
    field = path.partition("{")[2].partition("}")[0]
    return lambda thing: how(path.replace(f"{{{field}}}", named(field, thing)), reply)


def _sends(path: str, reply: type[M]) -> Callable[[BaseModel], Call[M]]:
    """A request that sends one body to a fixed path."""
    return lambda body: post(path, reply, body)


# Jobs


@dataclass(frozen=True, slots=True)
class Look:
    """A job, and the ETag by which the server tells whether it has changed since."""

    job: JobDetail
    mark: str | None


submit: Callable[[JobIn], Call[SubmittedOut]] = _sends("/jobs/submit", SubmittedOut)


def submit_many(jobs: Sequence[JobIn]) -> Call[SubmittedManyOut]:
    return post("/jobs/submit/batch", SubmittedManyOut, built(lambda: JobsIn(jobs=tuple(jobs))))


def look(job_id: str, mark: str | None = None) -> Call[Look | None]:
    """None when the job is as it was when `mark` was given."""

    def read(answer: Answer) -> Look | None:
        return None if answer.status == 304 else Look(answer.read(JobDetail), answer.headers.get("etag"))

    return Call(
        method="GET",
        path=_job(job_id),
        read=read,
        headers={} if mark is None else {"If-None-Match": mark},
        also=frozenset() if mark is None else frozenset({304}),
    )


job = _by_id(get, "/jobs/{job_id}", JobDetail)


def result(job_id: str) -> Call[ResultOut | None]:
    """None while the job has not ended."""

    def read(answer: Answer) -> ResultOut | None:
        if answer.status != 409:
            return answer.read(ResultOut)
        found = answer.problem()
        if found is not None and found.type == NOT_FINISHED:
            return None
        raise refusal(answer)

    return Call(method="GET", path=f"{_job(job_id)}/result", read=read, also=frozenset({409}))


def file(job_id: str, name: str) -> Call[object]:
    path = f"{_job(job_id)}/files/{quote(name, safe='')}"
    return Call(method="GET", path=path, read=nothing, headers={"Accept": "*/*"})


def jobs(
    *,
    statuses: Sequence[str] = (),
    kind: str | None = None,
    agent: str | None = None,
    pool: str | None = None,
    tag: str | None = None,
    failure_class: str | None = None,
    begins: str | None = None,
    after: str | None = None,
    limit: int,
) -> Call[JobsOut]:
    return get(
        "/jobs",
        JobsOut,
        status=tuple(statuses),
        type=kind,
        agent=agent,
        pool=pool,
        tag=tag,
        failure_class=failure_class,
        begins=begins,
        after=after,
        limit=limit,
    )


attempts = _by_id(get, "/jobs/{job_id}/attempts", AttemptsOut)


def history(job_id: str, since: str | None) -> Call[EventsOut]:
    return get(f"{_job(job_id)}/events", EventsOut, since=since)


def logs(job_id: str, since: str | None) -> Call[LogsOut]:
    return get(f"{_job(job_id)}/logs", LogsOut, since=since)


eta = _by_id(get, "/jobs/{job_id}/eta", EtaOut)
timeline = _by_id(get, "/jobs/{job_id}/timeline", TimelineOut)
cancel = _by_id(post, "/jobs/{job_id}/cancel", CancelOut)


def retry(job_id: str, body: RetryIn) -> Call[None]:
    return Call(method="POST", path=f"{_job(job_id)}/retry", read=nothing, body=encoded(body))


def cancel_many(job_ids: Sequence[str]) -> Call[BulkOut]:
    return post("/jobs/cancel", BulkOut, built(lambda: JobIdsIn(ids=tuple(job_ids))))


def retry_many(job_ids: Sequence[str]) -> Call[BulkOut]:
    return post("/jobs/retry", BulkOut, built(lambda: JobIdsIn(ids=tuple(job_ids))))


def failures(since_hours: int = 24) -> Call[FailuresOut]:
    return get("/failures", FailuresOut, since_hours=since_hours)


requeue: Callable[[RequeueIn], Call[BulkOut]] = _sends("/failures/requeue", BulkOut)


def events(
    *, since: int | None, last: str | None, kind: str | None, job_id: str | None, follow: bool = True
) -> Call[object]:
    """A stream. `last` is the id of the last event that arrived; the server goes on behind it."""
    return Call(
        method="GET",
        path="/events",
        read=nothing,
        params={"since": since, "kind": kind, "job_id": job_id, "follow": None if follow else "false"},
        headers={} if last is None else {"Last-Event-ID": last},
        also=frozenset({204}),
    )


# The fleet


def health() -> Call[None]:
    return Call(method="GET", path="/health/live", read=nothing)


me = partial(get, "/me", MeOut)
overview = partial(get, "/overview", OverviewOut)
fleet = partial(get, "/fleet", FleetOut)


def why(kind: str, thing: str) -> Call[WhyOut]:
    return get(f"/why/{named('kind', kind)}/{named('id', thing)}", WhyOut)


def decisions(
    after: str | None = None, limit: int = 50, pool: str | None = None, *, acted: bool = False
) -> Call[DecisionsOut]:
    only = "acted" if acted else None
    return get("/decisions", DecisionsOut, after=after, limit=limit, pool=pool, only=only)


def decision(cycle: int) -> Call[DecisionOut]:
    return get(f"/decisions/{cycle:d}", DecisionOut)


def shadow(hours: int = 24) -> Call[ShadowReportOut]:
    return get("/decisions/shadow", ShadowReportOut, hours=hours)


def cost(days: int = 7) -> Call[CostOut]:
    return get("/cost", CostOut, days=days)


def workers(
    after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
) -> Call[WorkersOut]:
    """Newest first, the terminated ones too."""
    return get("/workers", WorkersOut, status=tuple(states), pool=pool, after=after, limit=limit)


worker = _by_id(get, "/workers/{worker_id}", WorkerOut)
drain_worker = _by_id(post, "/workers/{worker_id}/drain", DrainedOut)
leader = partial(get, "/leader", LeaderOut)
reconcile = partial(post, "/control/reconcile", CycleOut, wait=LONGEST_CYCLE)
pause: Callable[[PauseIn], Call[PauseOut]] = _sends("/control/pause", PauseOut)
resume: Callable[[ScopeIn], Call[ResumedOut]] = _sends("/control/resume", ResumedOut)
drain: Callable[[DrainIn], Call[PauseOut]] = _sends("/control/drain", PauseOut)
holds = partial(get, "/control/holds", PausesOut)

# Pools and limits

start_pool: Callable[[PoolIn], Call[PoolOut]] = _sends("/workers/pool", PoolOut)


def pools(after: str | None, limit: int) -> Call[PoolsOut]:
    return get("/workers/pool", PoolsOut, after=after, limit=limit)


pool = _by_id(get, "/workers/pool/{pool_id}", PoolOut)


def scale_pool(pool_id: str, wanted: ScaleIn) -> Call[PoolOut]:
    return post(f"{_pool(pool_id)}/scale", PoolOut, wanted)


def swap_pool(pool_id: str, wanted: SwapIn) -> Call[PoolOut]:
    # What is null is taken away, and so it has to be sent.
    body = wanted.model_dump_json(exclude_unset=True, by_alias=True).encode()
    path = f"{_pool(pool_id)}/swap"
    return Call(method="POST", path=path, read=lambda answer: answer.read(PoolOut), body=body)


drain_pool = _by_id(post, "/workers/pool/{pool_id}/drain", PoolOut)


def evict_pool(pool_id: str) -> Call[PoolOut]:
    return post("/control/evict_pool", PoolOut, built(lambda: EvictIn(pool_id=pool_id)))


def policy(version: int | None = None) -> Call[PolicyOut]:
    return get("/control/policy" if version is None else f"/control/policy/{version}", PolicyOut)


def set_policy(wanted: PolicyIn) -> Call[EditionOut]:
    return Call(
        method="PUT",
        path="/control/policy",
        read=lambda answer: answer.read(EditionOut),
        body=encoded(wanted),
    )


def policy_history(after: int | None, limit: int) -> Call[HistoryOut]:
    return get("/control/policy/history", HistoryOut, after=after, limit=limit)


# Leases and GPUs


def lease(body: LeaseIn) -> Call[LeaseAnswer]:
    return post("/leases", LeaseAnswer, body, wait=timedelta(seconds=body.wait_seconds))


def keep_lease(token: str) -> Call[KeptOut]:
    return post(f"/leases/{named('token', token)}/heartbeat", KeptOut, BeatIn())


release_lease = _by_id(post, "/leases/{token}/release", LeaseOut)
revoke_lease = _by_id(post, "/leases/{token}/revoke", LeaseOut)


def leases(*, ended: bool, after: str | None, limit: int) -> Call[LeasesOut]:
    return get("/leases", LeasesOut, all="true" if ended else None, after=after, limit=limit)


def gpus(*, after: str | None, limit: int) -> Call[GpusOut]:
    return get("/gpus", GpusOut, after=after, limit=limit)


def report_gpus(node: str, body: GpusIn) -> Call[TakenOut]:
    return post(f"/nodes/{named('node', node)}/gpus", TakenOut, body)


clear_gpu = _by_id(post, "/gpus/{uuid}/clear", GpuOut)


def _job(job_id: str) -> str:
    return f"/jobs/{named('job_id', job_id)}"


def _pool(pool_id: str) -> str:
    return f"/workers/pool/{named('pool_id', pool_id)}"
