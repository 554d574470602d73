"""What people and their programs ask of the server, one function for each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import quote

from herdsman.client.answers import Answer, body_of, nothing, refusal
from herdsman.client.call import Call, built, encoded, get, named, post
from herdsman.wire.control import (
    CycleOut,
    DrainIn,
    EvictIn,
    HoldOut,
    HoldsOut,
    LeaderOut,
    PauseIn,
    ResumedOut,
    ScopeIn,
)
from herdsman.wire.dashboard import (
    BulkOut,
    CostOut,
    DecisionOut,
    DecisionsOut,
    DrainedOut,
    EtaOut,
    FailuresOut,
    HerdOut,
    JobIdsIn,
    MeOut,
    OverviewOut,
    RequeueIn,
    TimelineOut,
    WhyOut,
)
from herdsman.wire.jobs import (
    AttemptsOut,
    CancelOut,
    EventsOut,
    JobDetail,
    JobIn,
    JobsIn,
    JobsOut,
    LogsOut,
    ResultOut,
    RetryIn,
    SubmittedManyOut,
    SubmittedOut,
)
from herdsman.wire.leases import (
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
from herdsman.wire.policy import EditionOut, HistoryOut, PolicyIn, PolicyOut
from herdsman.wire.pools import PoolIn, PoolOut, PoolsOut, ScaleIn, SwapIn
from herdsman.wire.shadow import ShadowReportOut
from herdsman.wire.workers import WorkerOut, WorkersOut

NOT_FINISHED = "urn:herdsman:not-finished"


@dataclass(frozen=True, slots=True)
class Look:
    """A job as it was seen, and the mark by which the server tells whether it has changed since."""

    job: JobDetail
    mark: str | None


def submit(job: JobIn) -> Call[SubmittedOut]:
    return post("/jobs/submit", body_of(SubmittedOut), job)


def submit_many(jobs: Sequence[JobIn]) -> Call[SubmittedManyOut]:
    return post("/jobs/submit/batch", body_of(SubmittedManyOut), built(lambda: JobsIn(jobs=tuple(jobs))))


def look(job_id: str, mark: str | None = None) -> Call[Look | None]:
    """None when the job is as it was when `mark` was given."""
    return Call(
        method="GET",
        path=f"/jobs/{named('job_id', job_id)}",
        read=_looked,
        headers={} if mark is None else {"If-None-Match": mark},
        also=frozenset({304}) if mark is not None else frozenset(),
    )


def job(job_id: str) -> Call[JobDetail]:
    return get(f"/jobs/{named('job_id', job_id)}", body_of(JobDetail))


def result(job_id: str) -> Call[ResultOut | None]:
    """None while the job has not ended."""
    return get(f"/jobs/{named('job_id', job_id)}/result", _result, also=frozenset({409}))


def file(job_id: str, name: str) -> Call[object]:
    return Call(
        method="GET",
        path=f"/jobs/{named('job_id', job_id)}/files/{quote(name, safe='')}",
        read=lambda _: None,
        headers={"Accept": "*/*"},
    )


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
    asked = {
        "status": tuple(statuses),
        "type": kind,
        "agent": agent,
        "pool": pool,
        "tag": tag,
        "failure_class": failure_class,
        "begins": begins,
        "after": after,
        "limit": limit,
    }
    return get("/jobs", body_of(JobsOut), asked)


def attempts(job_id: str) -> Call[AttemptsOut]:
    return get(f"/jobs/{named('job_id', job_id)}/attempts", body_of(AttemptsOut))


def history(job_id: str, since: str | None) -> Call[EventsOut]:
    return get(f"/jobs/{named('job_id', job_id)}/events", body_of(EventsOut), {"since": since})


def logs(job_id: str, since: str | None) -> Call[LogsOut]:
    return get(f"/jobs/{named('job_id', job_id)}/logs", body_of(LogsOut), {"since": since})


def cancel(job_id: str) -> Call[CancelOut]:
    return post(f"/jobs/{named('job_id', job_id)}/cancel", body_of(CancelOut))


def retry(job_id: str, body: RetryIn) -> Call[None]:
    return post(f"/jobs/{named('job_id', job_id)}/retry", nothing, body)


def workers(
    after: str | None, limit: int, *, states: Sequence[str] = (), pool: str | None = None
) -> Call[WorkersOut]:
    """Newest first, the terminated ones too."""
    asked = {"status": tuple(states), "pool": pool, "after": after, "limit": limit}
    return get("/workers", body_of(WorkersOut), asked)


def worker(worker_id: str) -> Call[WorkerOut]:
    return get(f"/workers/{named('worker_id', worker_id)}", body_of(WorkerOut))


def lease(body: LeaseIn) -> Call[LeaseAnswer]:
    asked = post("/leases", body_of(LeaseAnswer), body)
    return replace(asked, wait=timedelta(seconds=body.wait_seconds))


def keep_lease(token: str) -> Call[KeptOut]:
    return post(f"/leases/{named('token', token)}/heartbeat", body_of(KeptOut), BeatIn())


def release_lease(token: str) -> Call[LeaseOut]:
    return post(f"/leases/{named('token', token)}/release", body_of(LeaseOut))


def revoke_lease(token: str) -> Call[LeaseOut]:
    return post(f"/leases/{named('token', token)}/revoke", body_of(LeaseOut))


def leases(*, ended: bool, after: str | None, limit: int) -> Call[LeasesOut]:
    asked = {"all": "true" if ended else None, "after": after, "limit": limit}
    return get("/leases", body_of(LeasesOut), asked)


def gpus(*, after: str | None, limit: int) -> Call[GpusOut]:
    return get("/gpus", body_of(GpusOut), {"after": after, "limit": limit})


def report_gpus(node: str, body: GpusIn) -> Call[TakenOut]:
    return post(f"/nodes/{named('node', node)}/gpus", body_of(TakenOut), body)


def clear_gpu(uuid: str) -> Call[GpuOut]:
    return post(f"/gpus/{named('uuid', uuid)}/clear", body_of(GpuOut))


def events(
    *, since: int | None, last: str | None, kind: str | None, job_id: str | None, follow: bool = True
) -> Call[object]:
    """`last` is the id of the last event that arrived; the server goes on behind it."""
    return Call(
        method="GET",
        path="/events",
        read=lambda _: None,
        params=tuple(
            (name, str(value))
            for name, value in {
                "since": since,
                "kind": kind,
                "job_id": job_id,
                "follow": None if follow else "false",
            }.items()
            if value is not None
        ),
        headers={} if last is None else {"Last-Event-ID": last},
    )


# Pools


def start_pool(wanted: PoolIn) -> Call[PoolOut]:
    return post("/workers/pool", body_of(PoolOut), wanted)


def pools(after: str | None, limit: int) -> Call[PoolsOut]:
    return get("/workers/pool", body_of(PoolsOut), {"after": after, "limit": limit})


def pool(pool_id: str) -> Call[PoolOut]:
    return get(_pool(pool_id), body_of(PoolOut))


def scale_pool(pool_id: str, wanted: ScaleIn) -> Call[PoolOut]:
    return post(f"{_pool(pool_id)}/scale", body_of(PoolOut), wanted)


def swap_pool(pool_id: str, wanted: SwapIn) -> Call[PoolOut]:
    # What is null is taken away, and so it has to be sent.
    body = wanted.model_dump_json(exclude_unset=True).encode()
    return replace(post(f"{_pool(pool_id)}/swap", body_of(PoolOut)), body=body)


def drain_pool(pool_id: str) -> Call[PoolOut]:
    return post(f"{_pool(pool_id)}/drain", body_of(PoolOut))


def _pool(pool_id: str) -> str:
    return f"/workers/pool/{named('pool_id', pool_id)}"


# Control

LONGEST_CYCLE = timedelta(seconds=60)
"""Another replica may have to be asked, and a cycle takes its time."""


def pause(wanted: PauseIn) -> Call[HoldOut]:
    return post("/control/pause", body_of(HoldOut), wanted)


def resume(wanted: ScopeIn) -> Call[ResumedOut]:
    return post("/control/resume", body_of(ResumedOut), wanted)


def drain(wanted: DrainIn) -> Call[HoldOut]:
    return post("/control/drain", body_of(HoldOut), wanted)


def holds() -> Call[HoldsOut]:
    return get("/control/holds", body_of(HoldsOut))


def evict_pool(pool: str) -> Call[PoolOut]:
    return post("/control/evict_pool", body_of(PoolOut), built(lambda: EvictIn(pool_id=pool)))


def reconcile() -> Call[CycleOut]:
    return replace(post("/control/reconcile", body_of(CycleOut)), wait=LONGEST_CYCLE)


def leader() -> Call[LeaderOut]:
    return get("/leader", body_of(LeaderOut))


# Limits

POLICY = "/control/policy"


def policy(version: int | None = None) -> Call[PolicyOut]:
    return get(POLICY if version is None else f"{POLICY}/{version}", body_of(PolicyOut))


def set_policy(wanted: PolicyIn) -> Call[EditionOut]:
    return Call(method="PUT", path=POLICY, read=body_of(EditionOut), body=encoded(wanted))


def policy_history(after: int | None, limit: int) -> Call[HistoryOut]:
    return get(f"{POLICY}/history", body_of(HistoryOut), {"after": after, "limit": limit})


# What is looked at, and many jobs at once


def overview() -> Call[OverviewOut]:
    return get("/overview", body_of(OverviewOut))


def herd() -> Call[HerdOut]:
    return get("/herd", body_of(HerdOut))


def why(kind: str, thing: str) -> Call[WhyOut]:
    return get(f"/why/{named('kind', kind)}/{named('id', thing)}", body_of(WhyOut))


def eta(job_id: str) -> Call[EtaOut]:
    return get(f"/jobs/{named('job_id', job_id)}/eta", body_of(EtaOut))


def timeline(job_id: str) -> Call[TimelineOut]:
    return get(f"/jobs/{named('job_id', job_id)}/timeline", body_of(TimelineOut))


def decisions(
    after: str | None = None, limit: int = 50, pool: str | None = None, *, acted: bool = False
) -> Call[DecisionsOut]:
    only = "acted" if acted else None
    wanted = {"after": after, "limit": limit, "pool": pool, "only": only}
    return get("/decisions", body_of(DecisionsOut), wanted)


def decision(cycle: int) -> Call[DecisionOut]:
    return get(f"/decisions/{cycle:d}", body_of(DecisionOut))


def shadow(hours: int = 24) -> Call[ShadowReportOut]:
    return get("/decisions/shadow", body_of(ShadowReportOut), {"hours": hours})


def failures(since_hours: int = 24) -> Call[FailuresOut]:
    return get("/failures", body_of(FailuresOut), {"since_hours": since_hours})


def requeue(wanted: RequeueIn) -> Call[BulkOut]:
    return post("/failures/requeue", body_of(BulkOut), wanted)


def cost(days: int = 7) -> Call[CostOut]:
    return get("/cost", body_of(CostOut), {"days": days})


def cancel_many(job_ids: Sequence[str]) -> Call[BulkOut]:
    return post("/jobs/cancel", body_of(BulkOut), built(lambda: JobIdsIn(ids=tuple(job_ids))))


def retry_many(job_ids: Sequence[str]) -> Call[BulkOut]:
    return post("/jobs/retry", body_of(BulkOut), built(lambda: JobIdsIn(ids=tuple(job_ids))))


def drain_worker(worker_id: str) -> Call[DrainedOut]:
    return post(f"/workers/{named('worker_id', worker_id)}/drain", body_of(DrainedOut))


def me() -> Call[MeOut]:
    return get("/me", body_of(MeOut))


def _looked(answer: Answer) -> Look | None:
    if answer.status == 304:
        return None
    return Look(body_of(JobDetail)(answer), answer.headers.get("etag"))


def _result(answer: Answer) -> ResultOut | None:
    if answer.status == 409:
        found = answer.problem()
        if found is not None and found.type == NOT_FINISHED:
            return None
        raise refusal(answer)
    return body_of(ResultOut)(answer)
