"""Why it is so, as it is sent."""

from typing import Any, Literal, cast

from herdsman.control.decisions import growth
from herdsman.control.explain import Answer, Told, why_job, why_pool, why_worker
from herdsman.control.services import Services
from herdsman.control.snapshot import look_without_provider
from herdsman.core.counterfactual import NextWorker
from herdsman.core.model import AuditEntry, JobId, PoolId, WorkerId
from herdsman.wire.explain import BlockerOut, MoveOut, NextWorkerOut, RepeatedDecisionOut, WhyOut

Kind = Literal["job", "worker", "pool"]


def why(services: Services, kind: Kind, named: str) -> WhyOut:
    """Nobody outside is asked, so it may be asked for often."""
    match kind:
        case "job":
            return why_out(why_job(services, JobId(named)))
        case "worker":
            return why_out(why_worker(services, WorkerId(named)))
        case "pool":
            seen = services.database.read(lambda tx: look_without_provider(tx, services.fleet()))
            return why_out(why_pool(services, seen, PoolId(named)))


def why_out(answer: Answer) -> WhyOut:
    return WhyOut(
        kind=cast("Kind", answer.kind),
        id=answer.id,
        state=answer.state,
        since=answer.since,
        because=answer.because,
        decided=tuple(_told(each) for each in answer.decided),
        history=tuple(_move(each) for each in answer.history),
        next_worker=None if answer.next_worker is None else _next(answer.next_worker),
        numbers=answer.numbers,
        blocker=None if answer.blocker is None else BlockerOut.of(answer.blocker),
    )


def _told(told: Told) -> RepeatedDecisionOut:
    given: dict[str, Any] = {name: getattr(told, name) for name in RepeatedDecisionOut.model_fields}
    return RepeatedDecisionOut(**given)


def _move(step: AuditEntry) -> MoveOut:
    return MoveOut(
        ts=step.ts,
        from_status=step.from_state,
        to_status=step.to_state,
        reason=step.reason,
        actor=step.actor,
    )


def _next(following: NextWorker) -> NextWorkerOut:
    said = growth(following)
    return NextWorkerOut(
        queued=following.queued,
        at_queued=following.at_queued,
        blocked_by=said[1] if following.blocked_by is not None else None,
    )
