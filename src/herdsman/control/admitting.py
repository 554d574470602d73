"""Limits at the door: judged in the transaction that stores the jobs, so that what is refused leaves no trace (J10)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from herdsman.control.gatekeeper import look
from herdsman.control.services import Services
from herdsman.core.admission import (
    Accept,
    Defer,
    Reject,
    Reroute,
    Seen,
    Standing,
    Verdict,
    fallbacks,
    judge_all,
    over_queued,
)
from herdsman.core.bucket import Bucket, refilled
from herdsman.core.control_policy import ControlPolicy
from herdsman.core.errors import HerdsmanError
from herdsman.core.gating import Closed, Shut
from herdsman.core.model import NewJob, PoolId
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.store import admission
from herdsman.store.submissions import Draft


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one request, as it was when the request began."""

    policy: ControlPolicy
    closed: Closed


class NoBucket(Exception):
    """An agent is met for the first time; its row is made, and the transaction done again."""

    def __init__(self, agents: Sequence[str]) -> None:
        super().__init__(f"{len(agents)} agents have no bucket yet")
        self.agents = agents


def rules_for(services: Services, news: Iterable[NewJob]) -> Rules | None:
    """None where nothing limits these jobs: then nothing is looked at, and nothing more is run."""
    policy = services.rules()
    gated = policy.gates.any
    if not gated and not any(policy.limits_of(new.agent).bound_submission for new in news):
        return None
    if not gated:
        return Rules(policy, {})
    watch = services.gates
    return Rules(policy, watch(policy) if watch is not None else look(services.database, policy))


def admit(tx: Tx, rules: Rules, parcels: Sequence[Sequence[Draft]]) -> list[Sequence[Draft] | HerdsmanError]:
    """Each parcel as it is let in, or why it is not. What it costs is charged here; a refusal costs nothing."""
    news = [draft.new for parcel in parcels for draft in parcel]
    before = _see(tx, rules, news)
    left, answers = before.seen, list[Sequence[Draft] | HerdsmanError]()
    for parcel in parcels:
        verdicts, left = judge_all([draft.new for draft in parcel], rules.policy, left)
        if isinstance(verdicts, HerdsmanError):
            answers.append(verdicts)
        else:
            pairs = zip(parcel, verdicts, strict=True)
            answers.append([_under(draft, verdict, tx.now()) for draft, verdict in pairs])
    _charge(tx, before, left)
    return answers


def make_buckets(services: Services, rules: Rules, agents: Iterable[str]) -> None:
    for agent in agents:
        brim = rules.policy.limits_of(agent).most_at_once
        try:
            services.database.transact(
                lambda tx, agent=agent, brim=brim: admission.add_bucket(tx, agent, brim)
            )
        except Duplicate:  # somebody else met the agent in this very moment
            continue


@dataclass(frozen=True, slots=True)
class _Before:
    seen: Seen
    buckets: Mapping[str, Bucket]
    shut: Mapping[str, Shut]
    """The gates of agents. Both as they are stored."""


def _see(tx: Tx, rules: Rules, news: Sequence[NewJob]) -> _Before:
    policy = rules.policy
    agents = sorted({new.agent for new in news if policy.limits_of(new.agent).bound_submission})
    buckets = admission.lock_buckets(tx, agents) if agents else {}
    if missing := [agent for agent in agents if agent not in buckets]:
        raise NoBucket(missing)
    marked = [
        admission.queue_gate(agent) for agent in agents if policy.limits_of(agent).max_queued is not None
    ]
    shut = admission.shut_gates(tx, marked) if marked else {}
    standings: dict[str, Standing] = {}
    for agent in agents:
        limits, gate = policy.limits_of(agent), admission.queue_gate(agent)
        rate = limits.rate_per_second
        queued = 0 if limits.max_queued is None else admission.waiting_of(tx, agent, limits.max_queued)
        standings[agent] = Standing(
            bucket=None if rate is None else refilled(buckets[agent], rate, limits.most_at_once, tx.now()),
            queued=queued,
            shut=over_queued(limits, queued, shut=gate in shut),
            gpu_seconds=0 if limits.gpu_seconds_per_day is None else admission.used(tx, agent),
        )
    return _Before(
        Seen(now=tx.now(), agents=standings, closed=rules.closed, waiting=_waiting(tx, policy, news)),
        buckets,
        shut,
    )


def _waiting(tx: Tx, policy: ControlPolicy, news: Sequence[NewJob]) -> dict[PoolId, int]:
    """Of the pools that one of these jobs could be sent to."""
    most = policy.fallback_max_queued
    if most is None:
        return {}
    pools = dict.fromkeys(pool for new in news for pool in fallbacks(new, policy))
    return {pool: admission.waiting_in(tx, pool, most) for pool in pools}


def _charge(tx: Tx, before: _Before, left: Seen) -> None:
    for agent, standing in left.agents.items():
        if standing.bucket is not None and _moved(before, agent, standing.bucket):
            admission.put_bucket(tx, agent, standing.bucket)
        gate = admission.queue_gate(agent)
        if standing.shut != (gate in before.shut):
            detail = f"{standing.queued} jobs wait"
            admission.put_gate(tx, gate, Shut(detail=detail) if standing.shut else None)


def _moved(before: _Before, agent: str, bucket: Bucket) -> bool:
    """Tokens were spent; or the clock was set back, which must be kept even where nobody is let in."""
    return bucket != before.seen.agents[agent].bucket or bucket.filled_at < before.buckets[agent].filled_at


def _under(draft: Draft, verdict: Verdict, now: datetime) -> Draft:
    """What was asked for stays what the job is known by; only where and when it runs may be another."""
    new = draft.new
    match verdict:
        case Accept():
            return draft
        case Defer(until=until, code=code):
            asked = now + new.delay if new.delay else new.run_at or now
            later = replace(new, run_at=max(asked, until), delay=None)
            return replace(draft, new=later, admission=code.value)
        case Reroute(pool=pool, code=code):
            return replace(draft, new=replace(new, pool=pool), admission=code.value)
        case Reject():
            raise AssertionError("a parcel with a refused job has no drafts")
