"""Which gates are closed: looked at a few times a second, and the same for all replicas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from threading import Lock

import structlog

from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import HerdsmanError
from herdsman.ids import PoolId
from herdsman.jobs.model import NewJob
from herdsman.jobs.sql import Draft
from herdsman.limits import sql
from herdsman.limits.policy import ControlPolicy
from herdsman.limits.rules import (
    GATES,
    Accept,
    Bucket,
    Closed,
    Defer,
    Limit,
    Load,
    Reject,
    Reroute,
    Seen,
    Shut,
    Standing,
    Verdict,
    fallbacks,
    judge_all,
    over_queued,
    refilled,
    turned,
)
from herdsman.ports import Clock

log = structlog.get_logger()
FRESH_S = 0.5


class Gatekeeper:
    """Safe to share between threads: one of them looks, the others go on with what was last seen."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._looking = Lock()
        self._seen: tuple[int, Closed] | None = None
        """For which version of the policy, and what."""
        self._next = 0.0

    def __call__(self, policy: ControlPolicy) -> Closed:
        if not policy.gates.any:
            return {}
        seen = self._seen
        known = seen is not None and seen[0] == policy.version
        if seen is not None and known and self._clock.monotonic() < self._next:
            return seen[1]
        if not self._looking.acquire(blocking=not known):
            return seen[1] if seen is not None else {}
        try:
            self._next = self._clock.monotonic() + FRESH_S
            found = read_gates(self._database, policy)
            self._seen = (policy.version, found)
            return found
        finally:
            self._looking.release()


def read_gates(database: Database, policy: ControlPolicy) -> Closed:
    """Written only when a gate turns, so that the next one who looks, here or elsewhere, knows the side it is on."""
    if not policy.gates.any:
        return {}
    load, before = database.read(lambda tx: _read_gates(tx, policy))
    now = turned(policy.gates, load, before)
    changed = {gate: now.get(gate) for gate in GATES if now.get(gate) != before.get(gate)}
    if changed:
        _write(database, changed, load)
    return now


def _read_gates(tx: Tx, policy: ControlPolicy) -> tuple[Load, Closed]:
    gates = policy.gates
    marks = {
        Limit.GPU_MEMORY: gates.gpu_memory_high_pct,
        Limit.DEPTH: gates.queue_high,
        Limit.OLDEST: gates.oldest_high,
    }
    wanted = [gate for gate, mark in marks.items() if mark is not None]
    load = sql.read_gates(tx, wanted, but=policy.cpu_pool, deepest=gates.queue_high or 1)
    return load, sql.closed_gates(sql.shut_gates(tx, [gate.value for gate in GATES]))


def _write(database: Database, changed: Mapping[Limit, Shut | None], load: Load) -> None:
    def write(tx: Tx) -> None:
        for gate, shut in changed.items():
            sql.put_gate(tx, gate.value, shut)

    try:
        database.transact(write)
    except Duplicate:  # another replica saw the same and was faster
        return
    for gate, shut in changed.items():
        word = "gate.opened" if shut is None else "gate.closed"
        log.warning(word, gate=gate.value, depth=load.depth, gpu_used_mb=load.gpu_used_mb)


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
    return Rules(policy, watch(policy) if watch is not None else read_gates(services.database, policy))


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
            services.database.transact(lambda tx, agent=agent, brim=brim: sql.add_bucket(tx, agent, brim))
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
    buckets = sql.lock_buckets(tx, agents) if agents else {}
    if missing := [agent for agent in agents if agent not in buckets]:
        raise NoBucket(missing)
    marked = [sql.queue_gate(agent) for agent in agents if policy.limits_of(agent).max_queued is not None]
    shut = sql.shut_gates(tx, marked) if marked else {}
    standings: dict[str, Standing] = {}
    for agent in agents:
        limits, gate = policy.limits_of(agent), sql.queue_gate(agent)
        rate = limits.rate_per_second
        queued = 0 if limits.max_queued is None else sql.waiting_of(tx, agent, limits.max_queued)
        standings[agent] = Standing(
            bucket=None if rate is None else refilled(buckets[agent], rate, limits.most_at_once, tx.now()),
            queued=queued,
            shut=over_queued(limits, queued, shut=gate in shut),
            gpu_seconds=0 if limits.gpu_seconds_per_day is None else sql.used_today(tx, agent),
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
    return {pool: sql.waiting_in(tx, pool, most) for pool in pools}


def _charge(tx: Tx, before: _Before, left: Seen) -> None:
    for agent, standing in left.agents.items():
        if standing.bucket is not None and _moved(before, agent, standing.bucket):
            sql.put_bucket(tx, agent, standing.bucket)
        gate = sql.queue_gate(agent)
        if standing.shut != (gate in before.shut):
            detail = f"{standing.queued} jobs wait"
            sql.put_gate(tx, gate, Shut(detail=detail) if standing.shut else None)


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
