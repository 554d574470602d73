"""Every request of people and their programs, one function each: its method, path, parameters, body and reply.

Those of a worker stand in `queue`. The models of a subject are loaded by its first request: building all of them takes
longer than most commands do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import quote

from herdsman.client.call import Answer, Call, M, built, encoded, get, named, nothing, post, refusal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from herdsman.explain import wire as explain_wire
    from herdsman.fleet import wire as fleet_wire
    from herdsman.jobs import wire as jobs_wire
    from herdsman.leases import wire as leases_wire
    from herdsman.limits import wire as limits_wire
    from herdsman.pools import wire as pools_wire
else:

    class _Lazy:
        def __init__(self, subject: str) -> None:
            self._module = f"herdsman.{subject}.wire"

        def __getattr__(self, name: str) -> object:
            return getattr(import_module(self._module), name)

    explain_wire, fleet_wire, jobs_wire = _Lazy("explain"), _Lazy("fleet"), _Lazy("jobs")
    leases_wire, limits_wire, pools_wire = _Lazy("leases"), _Lazy("limits"), _Lazy("pools")

NOT_FINISHED = "urn:herdsman:not-finished"
LONGEST_CYCLE = timedelta(seconds=60)
"""Another replica may have to be asked, and a cycle takes its time."""


def _by_id(how: Callable[[str, type[M]], Call[M]], path: str, reply: Callable[[], type[M]]) -> Callable[[str], Call[M]]:
    """A request about one thing, whose id stands in the path."""
    field = path.partition("{")[2].partition("}")[0]
    return lambda thing: how(path.replace(f"{{{field}}}", named(field, thing)), reply())


def _sends(path: str, reply: Callable[[], type[M]]) -> Callable[[BaseModel], Call[M]]:
    """A request that sends one body to a fixed path."""
    return lambda body: post(path, reply(), body)


# Jobs


@dataclass(frozen=True, slots=True)
class Look:
    """A job, and the ETag by which the server tells whether it has changed since."""

    job: jobs_wire.JobDetail
    mark: str | None


submit: Callable[[jobs_wire.JobIn], Call[jobs_wire.SubmittedOut]] = _sends(
    "/jobs/submit", lambda: jobs_wire.SubmittedOut
)


def submit_many(jobs: Sequence[jobs_wire.JobIn]) -> Call[jobs_wire.SubmittedManyOut]:
    return post("/jobs/submit/batch", jobs_wire.SubmittedManyOut, built(lambda: jobs_wire.JobsIn(jobs=tuple(jobs))))


def look(job_id: str, mark: str | None = None) -> Call[Look | None]:
    """None when the job is as it was when `mark` was given."""

    def read(answer: Answer) -> Look | None:
        return None if answer.status == 304 else Look(answer.read(jobs_wire.JobDetail), answer.headers.get("etag"))

    return Call(
        method="GET",
        path=_job(job_id),
        read=read,
        headers={} if mark is None else {"If-None-Match": mark},
        also=frozenset() if mark is None else frozenset({304}),
    )


job = _by_id(get, "/jobs/{job_id}", lambda: jobs_wire.JobDetail)


def result(job_id: str) -> Call[jobs_wire.ResultOut | None]:
    """None while the job has not ended."""

    def read(answer: Answer) -> jobs_wire.ResultOut | None:
        if answer.status != 409:
            return answer.read(jobs_wire.ResultOut)
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
) -> Call[jobs_wire.JobsOut]:
    return get(
        "/jobs",
        jobs_wire.JobsOut,
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


attempts = _by_id(get, "/jobs/{job_id}/attempts", lambda: jobs_wire.AttemptsOut)


def history(job_id: str, since: str | None) -> Call[jobs_wire.EventsOut]:
    return get(f"{_job(job_id)}/events", jobs_wire.EventsOut, since=since)


def logs(job_id: str, since: str | None) -> Call[jobs_wire.LogsOut]:
    return get(f"{_job(job_id)}/logs", jobs_wire.LogsOut, since=since)


eta = _by_id(get, "/jobs/{job_id}/eta", lambda: explain_wire.EtaOut)
timeline = _by_id(get, "/jobs/{job_id}/timeline", lambda: explain_wire.TimelineOut)
cancel = _by_id(post, "/jobs/{job_id}/cancel", lambda: jobs_wire.CancelOut)


def retry(job_id: str, body: jobs_wire.RetryIn) -> Call[None]:
    return Call(method="POST", path=f"{_job(job_id)}/retry", read=nothing, body=encoded(body))


def cancel_many(job_ids: Sequence[str]) -> Call[jobs_wire.BulkOut]:
    return post("/jobs/cancel", jobs_wire.BulkOut, built(lambda: jobs_wire.JobIdsIn(ids=tuple(job_ids))))


def retry_many(job_ids: Sequence[str]) -> Call[jobs_wire.BulkOut]:
    return post("/jobs/retry", jobs_wire.BulkOut, built(lambda: jobs_wire.JobIdsIn(ids=tuple(job_ids))))


def failures(since_hours: int = 24) -> Call[jobs_wire.FailuresOut]:
    return get("/failures", jobs_wire.FailuresOut, since_hours=since_hours)


requeue: Callable[[jobs_wire.RequeueIn], Call[jobs_wire.BulkOut]] = _sends(
    "/failures/requeue", lambda: jobs_wire.BulkOut
)


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


def me() -> Call[fleet_wire.MeOut]:
    return get("/me", fleet_wire.MeOut)


def overview() -> Call[fleet_wire.OverviewOut]:
    return get("/overview", fleet_wire.OverviewOut)


def fleet() -> Call[fleet_wire.FleetOut]:
    return get("/fleet", fleet_wire.FleetOut)


def why(kind: str, thing: str) -> Call[explain_wire.WhyOut]:
    return get(f"/why/{named('kind', kind)}/{named('id', thing)}", explain_wire.WhyOut)


def decisions(
    after: str | None = None, limit: int = 50, pool: str | None = None, *, acted: bool = False
) -> Call[fleet_wire.DecisionsOut]:
    only = "acted" if acted else None
    return get("/decisions", fleet_wire.DecisionsOut, after=after, limit=limit, pool=pool, only=only)


def decision(cycle: int) -> Call[fleet_wire.DecisionOut]:
    return get(f"/decisions/{cycle:d}", fleet_wire.DecisionOut)


def shadow(hours: int = 24) -> Call[fleet_wire.ShadowReportOut]:
    return get("/decisions/shadow", fleet_wire.ShadowReportOut, hours=hours)


def cost(days: int = 7) -> Call[fleet_wire.CostOut]:
    return get("/cost", fleet_wire.CostOut, days=days)


def workers(
    after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
) -> Call[fleet_wire.WorkersOut]:
    """Newest first, the terminated ones too."""
    return get("/workers", fleet_wire.WorkersOut, status=tuple(states), pool=pool, after=after, limit=limit)


worker = _by_id(get, "/workers/{worker_id}", lambda: fleet_wire.WorkerOut)
drain_worker = _by_id(post, "/workers/{worker_id}/drain", lambda: fleet_wire.DrainedOut)


def leader() -> Call[fleet_wire.LeaderOut]:
    return get("/leader", fleet_wire.LeaderOut)


def reconcile() -> Call[fleet_wire.CycleOut]:
    return post("/control/reconcile", fleet_wire.CycleOut, wait=LONGEST_CYCLE)


pause: Callable[[limits_wire.PauseIn], Call[limits_wire.PauseOut]] = _sends(
    "/control/pause", lambda: limits_wire.PauseOut
)
resume: Callable[[limits_wire.ScopeIn], Call[limits_wire.ResumedOut]] = _sends(
    "/control/resume", lambda: limits_wire.ResumedOut
)
drain: Callable[[limits_wire.DrainIn], Call[limits_wire.PauseOut]] = _sends(
    "/control/drain", lambda: limits_wire.PauseOut
)


def holds() -> Call[limits_wire.PausesOut]:
    return get("/control/holds", limits_wire.PausesOut)


# Pools and limits

start_pool: Callable[[pools_wire.PoolIn], Call[pools_wire.PoolOut]] = _sends(
    "/workers/pool", lambda: pools_wire.PoolOut
)


def pools(after: str | None, limit: int) -> Call[pools_wire.PoolsOut]:
    return get("/workers/pool", pools_wire.PoolsOut, after=after, limit=limit)


pool = _by_id(get, "/workers/pool/{pool_id}", lambda: pools_wire.PoolOut)


def scale_pool(pool_id: str, wanted: pools_wire.ScaleIn) -> Call[pools_wire.PoolOut]:
    return post(f"{_pool(pool_id)}/scale", pools_wire.PoolOut, wanted)


def swap_pool(pool_id: str, wanted: pools_wire.SwapIn) -> Call[pools_wire.PoolOut]:
    # What is null is taken away, and so it has to be sent.
    body = wanted.model_dump_json(exclude_unset=True, by_alias=True).encode()
    path = f"{_pool(pool_id)}/swap"
    return Call(method="POST", path=path, read=lambda answer: answer.read(pools_wire.PoolOut), body=body)


drain_pool = _by_id(post, "/workers/pool/{pool_id}/drain", lambda: pools_wire.PoolOut)


def evict_pool(pool_id: str) -> Call[pools_wire.PoolOut]:
    return post("/control/evict_pool", pools_wire.PoolOut, built(lambda: pools_wire.EvictIn(pool_id=pool_id)))


def policy(version: int | None = None) -> Call[limits_wire.PolicyOut]:
    return get("/control/policy" if version is None else f"/control/policy/{version}", limits_wire.PolicyOut)


def set_policy(wanted: limits_wire.PolicyIn) -> Call[limits_wire.EditionOut]:
    return Call(
        method="PUT",
        path="/control/policy",
        read=lambda answer: answer.read(limits_wire.EditionOut),
        body=encoded(wanted),
    )


def policy_history(after: int | None, limit: int) -> Call[limits_wire.HistoryOut]:
    return get("/control/policy/history", limits_wire.HistoryOut, after=after, limit=limit)


# Leases and GPUs


def lease(body: leases_wire.LeaseIn) -> Call[leases_wire.LeaseAnswer]:
    return post("/leases", leases_wire.LeaseAnswer, body, wait=timedelta(seconds=body.wait_seconds))


def keep_lease(token: str) -> Call[leases_wire.KeptOut]:
    return post(f"/leases/{named('token', token)}/heartbeat", leases_wire.KeptOut, leases_wire.BeatIn())


release_lease = _by_id(post, "/leases/{token}/release", lambda: leases_wire.LeaseOut)
revoke_lease = _by_id(post, "/leases/{token}/revoke", lambda: leases_wire.LeaseOut)


def leases(*, ended: bool, after: str | None, limit: int) -> Call[leases_wire.LeasesOut]:
    return get("/leases", leases_wire.LeasesOut, all="true" if ended else None, after=after, limit=limit)


def gpus(*, after: str | None, limit: int) -> Call[leases_wire.GpusOut]:
    return get("/gpus", leases_wire.GpusOut, after=after, limit=limit)


def report_gpus(node: str, body: leases_wire.GpusIn) -> Call[leases_wire.TakenOut]:
    return post(f"/nodes/{named('node', node)}/gpus", leases_wire.TakenOut, body)


clear_gpu = _by_id(post, "/gpus/{uuid}/clear", lambda: leases_wire.GpuOut)


def _job(job_id: str) -> str:
    return f"/jobs/{named('job_id', job_id)}"


def _pool(pool_id: str) -> str:
    return f"/workers/pool/{named('pool_id', pool_id)}"
