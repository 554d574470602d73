"""Which jobs go to which workers, within one transaction.

Almost always the first in line is right, and many are given out by two statements. Where agents have to take turns,
jobs want models or share keys, types are stopped, or a GPU is not wholly free, the choice is made with more care.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.db.errors import Duplicate
from herdsman.db.statements import MOST_LISTED
from herdsman.errors import InvalidRequest
from herdsman.fleet import workers_sql
from herdsman.ids import PoolId, WorkerId, check_model, check_name
from herdsman.jobs import claim_sql, running_sql
from herdsman.jobs.claim_sql import ACTIVE_WORKER, BUSY_WORKER, FREE_WORKERS, Free, Waiting
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import MOST_AT_ONCE, SLOTS, ClaimRequest
from herdsman.jobs.rules import Head, JobSelector, Loaded, best, shares
from herdsman.leases import sql as leases_sql
from herdsman.leases.rules import LeaseMode
from herdsman.leases.sql import Room
from herdsman.limits.control_policy import ControlPolicy
from herdsman.states import Reason

Models = tuple[str, ...]
Slot = tuple[WorkerId, int]


@dataclass(kw_only=True)
class Choice:
    tx: Tx
    services: Services
    rules: ControlPolicy
    rooms: Mapping[WorkerId, Room]
    """What workers with GPUs have free on them; no entry where no lease is needed."""
    not_types: frozenset[str]
    limited: bool
    """Types are paused, or agents have limits: no job is simply given to whoever comes."""
    changed: Mapping[WorkerId, datetime | None]
    """When workers last changed their model."""
    no_gpu: frozenset[WorkerId] = frozenset()
    """Workers that have said that they have none."""
    _given: dict[str, WorkerId] = field(default_factory=dict[str, WorkerId])
    """GPUs that somebody got in this transaction."""
    _full_keys: set[str] = field(default_factory=set[str])
    _full_agents: set[str] = field(default_factory=set[str])

    def first(self, pool: PoolId, types: Sequence[str], takers: Mapping[WorkerId, Models]) -> list[Claim]:
        """One job for each taker, as far as there are any for it."""
        easy: list[WorkerId] = []
        taken: set[str] = set()
        for worker in takers:
            room = self.rooms.get(worker)
            # Of those that share a GPU only one: both would find it free.
            if not self.limited and self._narrow(worker) is None and (room is None or taken.isdisjoint(room.gpus)):
                easy.append(worker)
                taken.update(room.gpus if room else ())
        jobs = self._in_line(pool, easy, len(easy), types) if easy else []
        if jobs is None:
            easy, jobs = [], []
        given = self._give(pool, jobs, [(worker, 0) for worker in easy])
        for worker in [each for each in takers if each not in easy]:
            given += self._carefully(pool, worker, 0, types, takers[worker])
        return given

    def more(self, pool: PoolId, worker: WorkerId, slots: range, kind: str, models: Models) -> list[Claim]:
        """The rest of a batch: further jobs of one type for the same worker, each in a slot of its own."""
        easy = not self.limited and self._narrow(worker) is None
        jobs = self._in_line(pool, [worker], len(slots), [kind]) if easy else None
        if jobs is not None:
            return self._give(pool, jobs, [(worker, slot) for slot in slots])
        given: list[Claim] = []
        for slot in slots:
            one = self._carefully(pool, worker, slot, [kind], models)
            if not one:
                break
            given += one
        return given

    def ahead(self, pool: PoolId, worker: WorkerId, ask: ClaimRequest, slots: range) -> list[Claim]:
        """Jobs that the worker holds until it can run them: the next in line, up to the first that is another's, or has
        to be chosen with care."""
        if self.limited or not slots:
            return []
        jobs = claim_sql.next_jobs(self.tx, pool, min(len(slots), sum(ask.ahead.values())), ask.types)
        if jobs and jobs[0].several and self.rules.fair:
            jobs = self._by_turns(pool, len(jobs), ask.types) or []
        kept = None
        if jobs and self.services.leasing.mode is not LeaseMode.OFF:
            kept = leases_sql.kept_leases(self.tx, worker)
        taken = run_ahead(jobs, ask, kept=kept, no_gpu=worker in self.no_gpu)
        return self._give(pool, taken, [(worker, slot) for slot in slots], ask.incarnation or "")

    def _narrow(self, worker: WorkerId) -> int | None:
        """How much of its GPU a worker has, where others hold leases on it; a shadow lease narrows nothing."""
        room = self.rooms.get(worker)
        if room is None or self.services.leasing.mode is not LeaseMode.ON:
            return None
        if any(self._given.get(gpu, worker) != worker for gpu in room.gpus):
            return 0  # the room was measured before that; there is another round
        return None if room.whole else room.free_mb

    def _in_line(
        self, pool: PoolId, takers: Sequence[WorkerId], count: int, types: Sequence[str]
    ) -> list[Waiting] | None:
        """The next ones; None when they must not simply be given to whoever comes."""
        jobs = claim_sql.next_jobs(self.tx, pool, count, types)
        if jobs and jobs[0].several and self.rules.fair:
            turns = self._by_turns(pool, count, types)
            if turns is None:
                return None
            jobs = turns
        no_gpu = not self.no_gpu.isdisjoint(takers)
        for job in jobs:
            if no_gpu and job.gpu_memory_mb is not None and not job.allow_cpu:
                return None
            if job.model is not None or job.concurrency_key is not None:
                return None
        return jobs

    def _by_turns(self, pool: PoolId, count: int, types: Sequence[str]) -> list[Waiting] | None:
        circle = self._agents(pool, lambda: JobSelector(types=types))
        jobs: list[Waiting] = []
        waiting: list[str] = []
        while len(jobs) < count:
            joining = list(islice(circle, max(0, count - len(jobs) - len(waiting))))
            if joining and claim_sql.want_models(self.tx, pool, joining, types):
                return None
            waiting += joining
            if not waiting:
                break
            known = {job.job_id for job in jobs}
            for agent, number in shares(waiting, count - len(jobs)).items():
                before = sum(1 for job in jobs if job.agent == agent)
                mine = claim_sql.next_jobs(self.tx, pool, number + before, types, agent)
                fresh = [job for job in mine if job.job_id not in known]
                jobs += fresh
                if len(fresh) < number:
                    waiting.remove(agent)
        return jobs

    def _carefully(
        self, pool: PoolId, worker: WorkerId, slot: int, types: Sequence[str], models: Models
    ) -> list[Claim]:
        room_mb = self._narrow(worker)
        if room_mb == 0:
            return []
        changed, policy = self.changed.get(worker), self.services.policy
        loaded = Loaded(
            here=models,
            elsewhere=claim_sql.loaded_elsewhere(self.tx, pool, worker),
            settled=changed is None or self.tx.now() - changed >= policy.model_dwell,
        )
        overdue_before = self.tx.now() - policy.model_wait

        def wanted() -> JobSelector:
            """Asked again for each query: which agents and keys are full is found on the way."""
            return JobSelector(
                types=types,
                no_gpu=worker in self.no_gpu,
                not_types=self.not_types,
                only_agents=frozenset(self.rules.agents) if self.rules.default.max_running == 0 else None,
                not_agents=frozenset(self._full_agents),
                not_keys=frozenset(self._full_keys),
                room_mb=room_mb,
                loaded=loaded,
                overdue_before=overdue_before,
            )

        # Agents that take turns are tried one after the other; without turns, all at once.
        for agent in self._agents(pool, wanted) if self.rules.fair else (None,):
            # The best job of the agent, or of all. What is full is left out, and the query repeated without it.
            while True:
                if agent is None:
                    heads = claim_sql.heads_of_all(self.tx, pool, wanted())
                else:
                    heads = claim_sql.heads(self.tx, pool, wanted(), agent)
                judged = {Head(job.model, job.place, overdue=job.run_at <= overdue_before): job for job in heads}
                chosen = best(list(judged), loaded)
                if chosen is None or self._has_place(judged[chosen]):
                    break
            if chosen is not None:
                if chosen.model is not None and chosen.model not in models:
                    claim_sql.note_change(self.tx, worker, chosen.model)
                return self._give(pool, [judged[chosen]], [(worker, slot)])
        return []

    def _agents(self, pool: PoolId, wanted: Callable[[], JobSelector]) -> Iterator[str]:
        return claim_sql.agents_behind(self.tx, pool, self.services.turns.get(pool, ""), wanted)

    def _has_place(self, job: Waiting) -> bool:
        """Counted while the key is locked, so that two replicas cannot both give out its last place.

        With the first that is full all others are learned, so that many of them cost no more than one.
        """
        key, most = job.concurrency_key, self.rules.limits_of(job.agent).max_running
        if most is not None:
            claim_sql.lock_key(self.tx, claim_sql.agent_key(job.agent))
            if claim_sql.running_of(self.tx, "agent", job.agent).get(job.agent, 0) >= most:
                full = self.rules.full_agents(claim_sql.running_of(self.tx, "agent"))
                self._full_agents |= {job.agent, *full}
                return False
        if key is not None:
            claim_sql.lock_key(self.tx, key)
            if claim_sql.running_of(self.tx, "concurrency_key", key).get(key, 0) >= self.rules.most_of(key):
                running = claim_sql.running_of(self.tx, "concurrency_key")
                full = {each for each, count in running.items() if count >= self.rules.most_of(each)}
                self._full_keys |= {key, *full}
                return False
        return True

    def _give(
        self, pool: PoolId, jobs: Sequence[Waiting], slots: Sequence[Slot], incarnation: str | None = None
    ) -> list[Claim]:
        """Jobs to slots of workers, as far as there are both. The claim and the lease together, or neither (L5)."""
        claims = claim_sql.claim(self.tx, jobs, slots, self.services.policy.claim_ttl, incarnation)
        for claim, job, (worker, slot) in zip(claims, jobs, slots, strict=False):
            self.services.turns[pool] = job.agent
            room = self.rooms.get(worker)
            if room is not None and slot == 0:
                self._given |= dict.fromkeys(room.gpus, worker)
                leases_sql.occupy(
                    self.tx,
                    worker,
                    agent=job.agent,
                    gpus=room.gpus,
                    memory_mb=job.gpu_memory_mb,
                    job_id=job.job_id,
                    expires_at=claim.expires_at,
                )
        return claims


def run_ahead(
    jobs: Sequence[Waiting], ask: ClaimRequest, *, kept: frozenset[int | None] | None, no_gpu: bool
) -> list[Waiting]:
    """The first of these jobs, as far as the worker may hold them behind what it works on.

    Its leases stay as they are meanwhile (`kept`, where it needs any), and what was given back once is not held again.
    """
    taken, left = list[Waiting](), dict(ask.ahead)
    for job in jobs:
        left[job.type] = left.get(job.type, 0) - 1
        gpu = job.gpu_memory_mb is None or bool(job.allow_cpu) or not no_gpu
        leased = not kept or kept == frozenset((job.gpu_memory_mb,))
        loaded = job.model is None or job.model in ask.models
        urgent = ask.urgent_before is None or job.place < ask.urgent_before
        new = job.reason != Reason.NOT_BEGUN
        if left[job.type] < 0 or not (gpu and leased and loaded and urgent and new) or job.concurrency_key is not None:
            break
        taken.append(job)
    return taken


_TRIES = 5
MOST_KNOWN = 50_000
"""Workers whose types are remembered."""


def claim_for(services: Services, asks: Mapping[WorkerId, ClaimRequest]) -> list[Claim]:
    """What each worker asks for, as far as it is there. A job of a type that nobody knows waits (J1)."""
    if len(asks) > MOST_LISTED:
        raise InvalidRequest(f"{len(asks)} workers asked at once, the limit is {MOST_LISTED}")
    for worker_id, ask in asks.items():
        check_name("worker_id", worker_id, 128)
        check_request(ask)
    if not asks:
        return []
    note_types(services, asks)
    rules = services.rules()
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: give(tx, services, asks, rules))
        except Duplicate:  # a second request of one of these workers got its job in this very moment
            continue
    return []


def note_types(services: Services, asks: Mapping[WorkerId, ClaimRequest]) -> None:
    """Write down which types these workers take, where that has changed.

    In a transaction of its own for each: nobody who asks for work waits for another's row. A worker that fills up a
    batch names only its type. One that never named any takes anything.
    """
    known = services.types
    for worker_id, ask in asks.items():
        if ask.beside or ask.held or known.get(worker_id, ()) == ask.types:
            continue
        services.database.transact(lambda tx, of=worker_id, types=ask.types: workers_sql.note_types(tx, of, types))
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[worker_id] = ask.types


def held_claims(services: Services, worker_id: WorkerId, incarnation: str | None = None) -> list[ClaimKey]:
    """What this worker holds, be it that the answer with a claim never reached it.

    A second process under the same name must not take what the first is at work on for unheard of, so what another
    incarnation has begun is left out.
    """
    check_name("worker_id", worker_id, 128)
    return services.database.read(lambda tx: claim_sql.held_keys(tx, worker_id, incarnation))


def check_request(ask: ClaimRequest) -> None:
    if len(ask.types) > MOST_LISTED:
        raise InvalidRequest(f"{len(ask.types)} types were named, the limit is {MOST_LISTED}")
    for kind in ask.types:
        check_name("type", kind, 64)
    if ask.ahead and (ask.beside or ask.resume):
        raise InvalidRequest("jobs were asked for ahead beside a batch, or again: ask for them alone")
    for kind, most in ask.ahead.items():
        check_name("type", kind, 64)
        if not 1 <= most <= MOST_AT_ONCE:
            raise InvalidRequest(f"ahead of {kind} is {most}: it must be from 1 to {MOST_AT_ONCE}")
    if not 0 <= ask.slot <= SLOTS - MOST_AT_ONCE:
        raise InvalidRequest(f"slot is {ask.slot}: it must be from 0 to {SLOTS - MOST_AT_ONCE}")
    if ask.beside and len(ask.types) != 1:
        raise InvalidRequest(f"{len(ask.types)} types were named: a batch is filled up with jobs of one")
    for model in ask.models:
        check_model("model", model)
    for kind, most in ask.most.items():
        check_name("type", kind, 64)
        if not 1 <= most + ask.beside <= MOST_AT_ONCE:
            raise InvalidRequest(f"most of {kind} is {most}: it must be from 1 to {MOST_AT_ONCE}")


def give(
    tx: Tx,
    services: Services,
    asks: Mapping[WorkerId, ClaimRequest],
    rules: ControlPolicy,
    endings: Mapping[WorkerId, int] | None = None,
) -> list[Claim]:
    """The same, within a transaction that does more: so many claims of workers come to their `endings` behind it."""
    lost = [worker_id for worker_id, ask in asks.items() if ask.resume]
    held = claim_sql.held(tx, lost) if lost else []
    # A worker that came back with fewer types is not handed what it cannot run: that claim runs out.
    given = [each for each in held if each.type in (asks[each.worker_id].types or (each.type,))]
    # Those that may have jobs; their rows stay locked until the end.
    empty = [worker_id for worker_id, ask in asks.items() if not ask.beside and not ask.held]
    free = [Free(*row) for row in tx.rows(FREE_WORKERS, {"b_now": tx.now()}, empty)] if empty else []
    fuller = [{"b_worker": worker_id, "b_now": tx.now()} for worker_id, ask in asks.items() if ask.beside]
    active = [Free(*row) for worker in fuller for row in tx.rows(ACTIVE_WORKER, worker)]
    busy = _busy_workers(tx, asks)
    both = [*free, *active]
    everyone = [*both, *(each for each, _ in busy)]
    leased = services.leasing.mode is not LeaseMode.OFF and both
    not_types = claim_sql.held_types(tx) if any(each.types_held for each in everyone) else frozenset[str]()
    choice = Choice(
        tx=tx,
        services=services,
        rules=rules,
        rooms=leases_sql.rooms(tx, [each.worker_id for each in both], services.leasing) if leased else {},
        not_types=not_types,
        limited=bool(not_types) or rules.limits_running,
        changed={each.worker_id: each.loaded_at for each in both},
        no_gpu=frozenset(each.worker_id for each in everyone if each.gpu_seen == 0),
    )
    # Those who would take the same jobs are served together.
    lines: defaultdict[tuple[PoolId, tuple[str, ...]], dict[WorkerId, Models]] = defaultdict(dict)
    for each in free:
        ask = asks[each.worker_id]
        lines[each.pool, ask.types][each.worker_id] = ask.models
    taken: list[Claim] = []
    ahead: list[Claim] = []
    for (pool, types), takers in sorted(lines.items()):
        first = choice.first(pool, types, takers)
        taken += first
        for claim in first:
            ask = asks[claim.worker_id]
            slots = range(1, ask.most.get(claim.type, 1))
            if slots:
                taken += choice.more(pool, claim.worker_id, slots, claim.type, takers[claim.worker_id])
            elif ask.ahead:
                ahead += choice.ahead(pool, claim.worker_id, ask, range(1, MOST_AT_ONCE))
    for each, count in busy:
        ask = asks[each.worker_id]
        # Those whose ends come with this request are counted too, and their slots are not used again before.
        slots = range(ask.slot, ask.slot + max(0, MOST_AT_ONCE - count + (endings or {}).get(each.worker_id, 0)))
        ahead += choice.ahead(each.pool, each.worker_id, ask, slots)
    for each in active:
        # The slots behind those that it says to hold; one that is taken after all undoes everything (`Duplicate`).
        ask = asks[each.worker_id]
        slots = range(ask.beside, ask.beside + ask.most.get(ask.types[0], 1))
        taken += choice.more(each.pool, each.worker_id, slots, ask.types[0], ask.models)
    _begin(tx, asks, taken)
    return given + taken + ahead


def _busy_workers(tx: Tx, asks: Mapping[WorkerId, ClaimRequest]) -> list[tuple[Free, int]]:
    """Those that ask ahead, and how many claims each holds: none where one is in a slot that should be free."""
    found: list[tuple[Free, int]] = []
    for worker_id, ask in asks.items():
        wanted = {"b_worker": worker_id, "b_now": tx.now(), "b_slot": ask.slot}
        for *worker, count, taken in tx.rows(BUSY_WORKER, wanted) if ask.held else ():
            if not taken:
                found.append((Free(*worker), count))
    return found


def _begin(tx: Tx, asks: Mapping[WorkerId, ClaimRequest], taken: Sequence[Claim]) -> None:
    begun: defaultdict[WorkerId, list[tuple[ClaimKey, datetime | None]]] = defaultdict(list)
    for claim in taken:
        if asks[claim.worker_id].begin:
            due = tx.now() + claim.timeout if claim.timeout else None
            begun[claim.worker_id].append((claim.key, due))
    for worker, claims in begun.items():
        running_sql.start(tx, claims, f"worker:{worker}", worker, asks[worker].incarnation)
