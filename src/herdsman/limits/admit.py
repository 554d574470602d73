"""Admission of jobs: which gates are closed, and which jobs come in under which limit."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from herdsman.concurrency import LatestValue
from herdsman.context import Services
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import HerdsmanError
from herdsman.ids import PoolId
from herdsman.jobs.model import NewJob
from herdsman.jobs.sql import Draft
from herdsman.limits import sql
from herdsman.limits.control_policy import ControlPolicy
from herdsman.limits.rules import (
    GATES,
    Accept,
    AdmissionState,
    AgentUsage,
    Bucket,
    Closed,
    ClosedGate,
    Defer,
    Limit,
    Load,
    Reject,
    Reroute,
    Verdict,
    fallbacks,
    gates_now,
    judge_all,
    over_queued,
    refilled,
)
from herdsman.ports import Clock

log = structlog.get_logger()
FRESH_S = 0.5


class GateCache:
    """The closed gates, read at most every half second, and anew under another policy."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._latest: tuple[int, LatestValue[Closed]] | None = None
        """With the version of the policy."""

    def __call__(self, policy: ControlPolicy) -> Closed:
        if not policy.gates.any:
            return {}
        latest = self._latest
        if latest is None or latest[0] != policy.version:
            value = LatestValue[Closed](lambda _: read_gates(self._database, policy), self._clock, FRESH_S)
            latest = self._latest = (policy.version, value)
        return latest[1]()


def read_gates(database: Database, policy: ControlPolicy) -> Closed:
    """Written only when a gate opens or closes, so that the next reader, here or elsewhere, knows its state."""
    gates = policy.gates
    if not gates.any:
        return {}
    marks = {
        Limit.GPU_MEMORY: gates.gpu_memory_high_pct,
        Limit.DEPTH: gates.queue_high,
        Limit.OLDEST: gates.oldest_high,
    }
    wanted = [gate for gate, mark in marks.items() if mark is not None]

    def read(tx: Tx) -> tuple[Load, Closed]:
        load = sql.read_load(tx, wanted, but=policy.cpu_pool, deepest=gates.queue_high or 1)
        closed = sql.read_closed_gates(tx, [gate.value for gate in GATES])
        return load, {Limit(name): gate for name, gate in closed.items()}

    load, before = database.read(read)
    now = gates_now(gates, load, before)
    changed = {gate: now.get(gate) for gate in GATES if now.get(gate) != before.get(gate)}

    def write(tx: Tx) -> None:
        for gate, closed in changed.items():
            sql.put_gate(tx, gate.value, closed)

    if changed:
        with suppress(Duplicate):  # another replica found the same and was faster
            database.transact(write)
            for gate, closed in changed.items():
                word = "gate.opened" if closed is None else "gate.closed"
                log.warning(word, gate=gate.value, depth=load.depth, gpu_used_mb=load.gpu_used_mb)
    return now


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


def rules_now(services: Services, policy: ControlPolicy) -> Rules:
    """The policy with the gates that are closed under it."""
    watch = services.gates
    return Rules(policy, watch(policy) if watch is not None else read_gates(services.database, policy))


def admit(tx: Tx, rules: Rules, groups: Sequence[Sequence[Draft]]) -> list[Sequence[Draft] | HerdsmanError]:
    """Each group as it is admitted, or why it is not. Its cost is charged here; a refusal costs nothing."""
    before, buckets, shut = _read(tx, rules, [draft.new for group in groups for draft in group])
    left, answers = before, list[Sequence[Draft] | HerdsmanError]()
    for group in groups:
        verdicts, left = judge_all([draft.new for draft in group], rules.policy, left)
        if isinstance(verdicts, HerdsmanError):
            answers.append(verdicts)
        else:
            pairs = zip(group, verdicts, strict=True)
            answers.append([_under(draft, verdict, tx.now()) for draft, verdict in pairs])
    for agent, usage in left.agents.items():
        # Tokens were spent; or the clock was set back, which must be kept even where nothing is admitted.
        bucket, stored = usage.bucket, buckets[agent]
        if bucket is not None and (bucket != before.agents[agent].bucket or bucket.filled_at < stored.filled_at):
            sql.put_bucket(tx, agent, bucket)
        gate = sql.queue_gate(agent)
        if usage.shut != (gate in shut):
            detail = f"{usage.queued} jobs wait"
            sql.put_gate(tx, gate, ClosedGate(detail=detail) if usage.shut else None)
    return answers


def make_buckets(services: Services, rules: Rules, agents: Iterable[str]) -> None:
    for agent in agents:
        capacity = rules.policy.limits_of(agent).most_at_once
        try:
            services.database.transact(lambda tx, agent=agent, capacity=capacity: sql.add_bucket(tx, agent, capacity))
        except Duplicate:  # somebody else met the agent in this very moment
            continue


def _read(
    tx: Tx, rules: Rules, news: Sequence[NewJob]
) -> tuple[AdmissionState, Mapping[str, Bucket], Mapping[str, ClosedGate]]:
    """With the buckets and the closed gates of agents, as they are stored."""
    policy = rules.policy
    agents = sorted({new.agent for new in news if policy.limits_of(new.agent).bound_submission})
    buckets = sql.lock_buckets(tx, agents) if agents else {}
    if missing := [agent for agent in agents if agent not in buckets]:
        raise NoBucket(missing)
    marked = [sql.queue_gate(agent) for agent in agents if policy.limits_of(agent).max_queued is not None]
    shut = sql.read_closed_gates(tx, marked) if marked else {}
    usages: dict[str, AgentUsage] = {}
    for agent in agents:
        limits, gate = policy.limits_of(agent), sql.queue_gate(agent)
        rate = limits.rate_per_second
        queued = 0 if limits.max_queued is None else sql.waiting_of(tx, agent, limits.max_queued)
        usages[agent] = AgentUsage(
            bucket=None if rate is None else refilled(buckets[agent], rate, limits.most_at_once, tx.now()),
            queued=queued,
            shut=over_queued(limits, queued, shut=gate in shut),
            gpu_seconds=0 if limits.gpu_seconds_per_day is None else sql.used_today(tx, agent),
        )
    waiting: dict[PoolId, int] = {}
    if policy.fallback_max_queued is not None:
        most, pools = policy.fallback_max_queued, {pool for new in news for pool in fallbacks(new, policy)}
        waiting = {pool: sql.waiting_in(tx, pool, most) for pool in sorted(pools)}
    state = AdmissionState(now=tx.now(), agents=usages, closed=rules.closed, waiting=waiting)
    return state, buckets, shut


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
            raise AssertionError("a group with a refused job has no drafts")
