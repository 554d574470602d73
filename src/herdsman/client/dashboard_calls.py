"""What a dashboard asks of the server, one function for each."""

from collections.abc import Sequence

from herdsman.client.answers import body_of
from herdsman.client.call import Call, built, get, named, post
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
from herdsman.wire.shadow import ShadowReportOut


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
