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
from herdsman.limits import rules as limit_rules
from herdsman.limits import sql
from herdsman.limits.control_policy import ControlPolicy
from herdsman.ports import Clock

log = structlog.get_logger()
FRESH_S = 0.5


class GateCache:
    """The closed gates, read at most every half second, and anew under another policy."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._latest: tuple[int, LatestValue[limit_rules.Closed]] | None = None
        """With the version of the policy."""

    def __call__(self, policy: ControlPolicy) -> limit_rules.Closed:
        if not policy.gates.any:
            return {}
        latest = self._latest
        if latest is None or latest[0] != policy.version:
            value = LatestValue[limit_rules.Closed](lambda _: read_gates(self._database, policy), self._clock, FRESH_S)
            latest = self._latest = (policy.version, value)
        return latest[1]()


def read_gates(database: Database, policy: ControlPolicy) -> limit_rules.Closed:
    """Written only when a gate opens or closes, so that the next reader, here or elsewhere, knows its state."""
    gates = policy.gates
    if not gates.any:
        return {}
    marks = {
        limit_rules.Limit.GPU_MEMORY: gates.gpu_memory_high_pct,
        limit_rules.Limit.DEPTH: gates.queue_high,
        limit_rules.Limit.OLDEST: gates.oldest_high,
    }
    wanted = [gate for gate, mark in marks.items() if mark is not None]

    def read(tx: Tx) -> tuple[limit_rules.Load, limit_rules.Closed]:
        load = sql.read_load(tx, wanted, but=policy.cpu_pool, deepest=gates.queue_high or 1)
        closed = sql.read_closed_gates(tx, [gate.value for gate in limit_rules.GATES])
        return load, {limit_rules.Limit(name): gate for name, gate in closed.items()}

    load, before = database.read(read)
    now = limit_rules.gates_now(gates, load, before)
    changed = {gate: now.get(gate) for gate in limit_rules.GATES if now.get(gate) != before.get(gate)}

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
    closed: limit_rules.Closed


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
        verdicts, left = limit_rules.judge_all([draft.new for draft in group], rules.policy, left)
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
            sql.put_gate(tx, gate, limit_rules.ClosedGate(detail=detail) if usage.shut else None)
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
) -> tuple[limit_rules.AdmissionState, Mapping[str, limit_rules.Bucket], Mapping[str, limit_rules.ClosedGate]]:
    """With the buckets and the closed gates of agents, as they are stored."""
    policy = rules.policy
    agents = sorted({new.agent for new in news if policy.limits_of(new.agent).bound_submission})
    buckets = sql.lock_buckets(tx, agents) if agents else {}
    if missing := [agent for agent in agents if agent not in buckets]:
        raise NoBucket(missing)
    marked = [sql.queue_gate(agent) for agent in agents if policy.limits_of(agent).max_queued is not None]
    shut = sql.read_closed_gates(tx, marked) if marked else {}
    usages: dict[str, limit_rules.AgentUsage] = {}
    for agent in agents:
        limits, gate = policy.limits_of(agent), sql.queue_gate(agent)
        rate = limits.rate_per_second
        queued = 0 if limits.max_queued is None else sql.waiting_of(tx, agent, limits.max_queued)
        usages[agent] = limit_rules.AgentUsage(
            bucket=None if rate is None else limit_rules.refilled(buckets[agent], rate, limits.most_at_once, tx.now()),
            queued=queued,
            shut=limit_rules.over_queued(limits, queued, shut=gate in shut),
            gpu_seconds=0 if limits.gpu_seconds_per_day is None else sql.used_today(tx, agent),
        )
    waiting: dict[PoolId, int] = {}
    if policy.fallback_max_queued is not None:
        most, pools = policy.fallback_max_queued, {pool for new in news for pool in limit_rules.fallbacks(new, policy)}
        waiting = {pool: sql.waiting_in(tx, pool, most) for pool in sorted(pools)}
    state = limit_rules.AdmissionState(now=tx.now(), agents=usages, closed=rules.closed, waiting=waiting)
    return state, buckets, shut


def _under(draft: Draft, verdict: limit_rules.Verdict, now: datetime) -> Draft:
    """What was asked for stays what the job is known by; only where and when it runs may be another."""
    new = draft.new
    match verdict:
        case limit_rules.Accept():
            return draft
        case limit_rules.Defer(until=until, code=code):
            asked = now + new.delay if new.delay else new.run_at or now
            later = replace(new, run_at=max(asked, until), delay=None)
            return replace(draft, new=later, admission=code.value)
        case limit_rules.Reroute(pool=pool, code=code):
            return replace(draft, new=replace(new, pool=pool), admission=code.value)
        case limit_rules.Reject():
            raise AssertionError("a group with a refused job has no drafts")
