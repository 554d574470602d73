"""Commands on GPU leases (grant, keep, release, revoke) and on GPUs (report, list, clear)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import Conflict, Forbidden, Gone, InvalidRequest, NotFound
from herdsman.fleet.model import GpuDevice
from herdsman.ids import check_name
from herdsman.jobs import claim_sql
from herdsman.json_text import encode
from herdsman.leases import gpus_sql, rules, sql
from herdsman.leases.gpus_sql import bounded
from herdsman.leases.wire import KeptOut
from herdsman.limits import sql as limits_sql
from herdsman.limits.control_policy import AgentLimits
from herdsman.limits.rules import ClosedGate
from herdsman.states import LeaseStatus, Reason

log = structlog.get_logger()
TRIES = 5
"""How often another request may take a GPU between reading and locking it; then all that fit are locked."""
MOST_TRIED = 16
MOST_METADATA = 16_384
Outcome = rules.Lease | rules.Refusal


def grant_lease(
    services: Services,
    asked: rules.LeaseRequest,
    *,
    new_token: Callable[[], str],
    who: str,
    reserved: frozenset[str] = frozenset(),
    last: bool = True,
) -> Outcome:
    """A lease, or why there is none. The same request with the same token returns the same lease.

    `reserved` GPUs are kept for others. Only the `last` try of a waiting request falls back to a lease without a GPU.
    """
    if services.leasing.mode is rules.LeaseMode.OFF:
        raise Conflict("leases are switched off here: LEASE_MODE is off, and GPUs are used without them")
    rules.check_request(asked)
    encode(asked.metadata, what="metadata", limit=MOST_METADATA)
    limits = services.rules().limits_of(asked.agent)
    for attempt in range(TRIES + 1):
        token = asked.token or new_token()
        trying = _Try(services, asked, limits, token, who, reserved, last=last, all_at_once=attempt == TRIES)
        try:
            outcome = services.database.transact(trying)
        except Duplicate:  # the same request at the same time, or the first lease of an agent with limits
            continue
        if outcome is not None:
            return outcome
    return rules.Refusal(reason=rules.RefusalReason.LEASED, detail="other requests were faster each time; ask again")


@dataclass(frozen=True, slots=True)
class _Try:
    services: Services
    asked: rules.LeaseRequest
    limits: AgentLimits
    token: str
    who: str
    reserved: frozenset[str]
    last: bool
    all_at_once: bool

    def __call__(self, tx: Tx) -> Outcome | None:
        """None when another request took the GPU first."""
        if self.asked.token is not None and (known := sql.find_lease(tx, self.asked.token)) is not None:
            if known.agent != self.asked.agent or known.worker_id is not None:
                raise Conflict(f"the token {known.token[:8]}... is taken by another lease")
            if known.over(tx.now()):
                raise Gone(f"the lease has ended ({known.reason}); ask for a new one with a new token")
            return known
        full = _over_limit(tx, self.limits, self.asked)
        if full is not None:
            return self._refused(tx, full, [])
        policy, spec = self.services.leasing, self.asked.spec
        usages = sql.read_usages(tx, spec.node)
        found = rules.choose(usages, spec, tx.now(), policy, self.reserved)
        if isinstance(found, rules.Refusal):
            return self._refused(tx, found, usages)
        # Read again under the lock: only that counts (L1).
        locked = self._locked(tx, found)
        fitting = [each for each in locked if rules.refusal_reason(each, spec, tx.now(), policy) is None]
        if not fitting:
            return None
        best = min(fitting, key=lambda each: rules.free_mb(each, policy))
        return sql.grant_lease(tx, self.token, self.asked, best.gpu, who=self.who)

    def _locked(self, tx: Tx, fits: Sequence[str]) -> Sequence[rules.GpuUsage]:
        """The best fit that is not locked already: a transaction that hangs on one GPU does not block the others."""
        if self.all_at_once:
            return sql.lock_gpus(tx, fits, self.who)
        for uuid in fits[:MOST_TRIED]:
            if found := sql.lock_gpus(tx, [uuid], self.who, skip_locked=True):
                return found
        return sql.lock_gpus(tx, fits[:1], self.who)

    def _refused(self, tx: Tx, refusal: rules.Refusal, usages: Sequence[rules.GpuUsage]) -> Outcome:
        policy, asked, spec = self.services.leasing, self.asked, self.asked.spec
        if policy.mode is rules.LeaseMode.SHADOW:
            reason = refusal.reason
            log.info("lease.overruled", agent=asked.agent, reason=reason, memory_mb=spec.memory_mb)
            named = [each for each in usages if spec.gpu_index in (None, each.gpu.index)]
            best = max(named, key=lambda each: rules.free_mb(each, policy), default=None)
            locked = () if best is None else sql.lock_gpus(tx, [best.gpu.uuid], self.who)
            gpu = locked[0].gpu if locked else None
            return sql.grant_lease(tx, self.token, asked, gpu, who=self.who, overruled=reason)
        if asked.allow_cpu and self.last:
            without_gpu = replace(asked, spec=rules.LeaseSpec(memory_mb=0))
            return sql.grant_lease(tx, self.token, without_gpu, None, who=self.who, mode="cpu")
        return refusal


def _over_limit(tx: Tx, limits: AgentLimits, asked: rules.LeaseRequest) -> rules.Refusal | None:
    """The watermarks of the agent: full at the upper one, and once it is full, open again only at the lower one."""
    most = limits.max_leased_mb
    if most is None:
        return None
    resume = most if limits.resume_leased_mb is None else limits.resume_leased_mb
    gate, wanted = f"leased:{asked.agent}", asked.spec.memory_mb
    claim_sql.lock_key(tx, f"lease/{asked.agent}"[: claim_sql.LONGEST_KEY])
    leased, shut = sql.leased_mb(tx, asked.agent), gate in limits_sql.read_closed_gates(tx, [gate])
    full = leased + wanted > most or (shut and leased > resume)
    if full != shut:
        limits_sql.put_gate(tx, gate, ClosedGate(until=None, detail=f"{leased} MB leased") if full else None)
    if not full:
        return None
    said = (
        f"agent {asked.agent} has {leased} MB leased and asks for {wanted} more: its limit is {most},"
        f" and it is open again at {resume}"
    )
    return rules.Refusal(reason=rules.RefusalReason.AGENT_LIMIT, detail=said)


def keep_lease(services: Services, token: str, *, only_agent: str | None = None) -> KeptOut:
    """A heartbeat. `Gone` once the lease has ended: a holder never gets it back (L2)."""

    def keep(tx: Tx) -> KeptOut:
        lease = _find(tx, token, only_agent)
        if lease.ttl is None:
            raise Conflict("this lease belongs to a worker's claim, and is kept by the worker's heartbeat")
        expires_at = sql.keep_lease(tx, lease)
        if expires_at is not None:
            margin = services.leasing.margin_of(lease.ttl)
            return KeptOut(token=token, expires_at=expires_at, margin_seconds=margin.total_seconds())
        ended = sql.find_lease(tx, token) or lease
        status = LeaseStatus.EXPIRED if ended.status is LeaseStatus.ACTIVE else ended.status
        since = ended.ended_at or ended.expires_at
        raise Gone(f"the lease is {status} since {since}: stop using the GPU, and ask for a new one")

    return services.database.transact(keep)


def release_lease(services: Services, token: str, *, who: str, only_agent: str | None = None) -> rules.Lease:
    """Give it back, to whichever replica (X2-09). One that has ended already is left as it ended."""
    return services.database.transact(
        lambda tx: _end(tx, token, LeaseStatus.RELEASED, Reason.RELEASED, who, only_agent)
    )


def revoke_lease(services: Services, token: str, *, who: str) -> rules.Lease:
    """Take it back from its holder, who learns of it with the next heartbeat."""
    return services.database.transact(lambda tx: _end(tx, token, LeaseStatus.REVOKED, Reason.REVOKED, who))


def _end(tx: Tx, token: str, to: LeaseStatus, reason: Reason, who: str, only_agent: str | None = None) -> rules.Lease:
    lease = _find(tx, token, only_agent)
    if lease.worker_id is not None and lease.status is LeaseStatus.ACTIVE:
        raise Conflict(
            f"this lease belongs to a claim of worker {lease.worker_id!r}: cancel its job, and it ends with it"
        )
    if lease.status is LeaseStatus.ACTIVE and lease.over(tx.now()):
        sql.end_lease(tx, token, LeaseStatus.EXPIRED, Reason.LEASE_EXPIRED, who, lease.expires_at)
    else:
        sql.end_lease(tx, token, to, reason, who)
    return _find(tx, token, only_agent)


def _find(tx: Tx, token: str, only_agent: str | None) -> rules.Lease:
    """To a submitter, the leases of others do not exist (X2)."""
    check_name("token", token)
    found = sql.find_lease(tx, token)
    if found is None or only_agent not in (None, found.agent):
        raise NotFound("there is no such lease")
    return found


def list_leases(services: Services, *, agent: str | None, ended: bool, after: str | None, limit: int) -> sql.LeasePage:
    return services.database.read(lambda tx: sql.page_leases(tx, agent=agent, ended=ended, after=after, limit=limit))


def agent_of(named: str | None, own: str | None, only: str | None) -> str:
    """For whom: a submitter only ever asks for its own agent (X2)."""
    if only is not None and named not in (None, only):
        raise Forbidden(f"the token is that of agent {only!r}, which may not ask for {named!r}")
    agent = only or named or own
    if agent is None:
        raise InvalidRequest("agent is missing: say for whom the lease is")
    return agent


def report_gpus(
    services: Services, node: str, devices: Sequence[GpuDevice], age: timedelta = timedelta(0)
) -> list[str]:
    """Record what was measured on a node without a worker; the GPUs whose report was accepted.

    A GPU that a live worker reports is left to the worker, which can tell its own memory from others'.
    """
    check_name("node_id", node, 128)
    if len(devices) > gpus_sql.MOST_OF_NODE:
        raise InvalidRequest(f"{len(devices)} GPUs were reported, the limit of a node is {gpus_sql.MOST_OF_NODE}")
    found, reporter = bounded(devices, gpus_sql.MOST_OF_NODE), gpus_sql.Reporter(node=node)
    return services.database.transact(lambda tx: gpus_sql.report_gpus(tx, reporter, found, age, services.leasing))


def list_gpus(services: Services, *, after: str | None, limit: int) -> gpus_sql.GpuPage:
    return services.database.read(lambda tx: gpus_sql.page_gpus(tx, after=after, limit=limit))


def clear_gpu(services: Services, uuid: str, *, who: str) -> rules.Gpu:
    """Lift a quarantine: memory in use on the GPU now counts as outsiders', and is not waited for."""
    if len(uuid) > 64 or "\0" in uuid:
        raise NotFound("there is no such GPU")
    cleared = services.database.transact(lambda tx: gpus_sql.clear_gpu(tx, uuid))
    log.info("gpu.cleared_by_hand", gpu=cleared.uuid, who=who, outside_mb=cleared.outside_mb)
    return cleared
