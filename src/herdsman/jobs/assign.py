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
from herdsman.ids import PoolId, WorkerId
from herdsman.jobs import claim_sql, running_sql
from herdsman.jobs.claim_sql import Free, Taking, Waiting
from herdsman.jobs.model import Claim, ClaimKey
from herdsman.jobs.protocol import MOST_AT_ONCE, Ask
from herdsman.jobs.rules import Head, JobSelector, Loaded, best, check_model, check_name, shares
from herdsman.leases import sql as leases_sql
from herdsman.leases.rules import LeaseMode
from herdsman.leases.sql import Room
from herdsman.limits.policy import ControlPolicy

Models = tuple[str, ...]


@dataclass(kw_only=True)
class Choice:
    tx: Tx
    services: Services
    rules: ControlPolicy
    rooms: Mapping[WorkerId, Room]
    """What workers with GPUs have free on them; no entry where no lease is needed."""
    not_types: frozenset[str]
    changed: Mapping[WorkerId, datetime | None]
    """When workers last changed their model."""
    no_gpu: frozenset[WorkerId] = frozenset()
    """Workers that have said that they have none."""
    _given: dict[str, WorkerId] = field(default_factory=dict[str, WorkerId])
    """GPUs that somebody got in this transaction."""
    _full_keys: set[str] = field(default_factory=set[str])
    _full_agents: set[str] = field(default_factory=set[str])

    @staticmethod
    def of(tx: Tx, services: Services, rules: ControlPolicy, free: Sequence[Free]) -> "Choice":
        stopped = any(each.types_held for each in free)
        leased = services.leasing.mode is not LeaseMode.OFF and free
        names = [each.worker_id for each in free]
        return Choice(
            tx=tx,
            services=services,
            rules=rules,
            rooms=leases_sql.rooms(tx, names, services.leasing) if leased else {},
            not_types=claim_sql.held_types(tx) if stopped else frozenset(),
            changed={each.worker_id: each.loaded_at for each in free},
            no_gpu=frozenset(each.worker_id for each in free if each.gpu_seen == 0),
        )

    def first(self, pool: PoolId, types: Sequence[str], takers: Mapping[WorkerId, Models]) -> list[Claim]:
        """One job for each taker, as far as there are any for it."""
        easy = self._apart([worker for worker in takers if self._unhindered(worker)])
        jobs = self._in_line(pool, easy, len(easy), types) if easy else []
        if jobs is None:
            easy, jobs = [], []
        given = self._give(pool, [Taking(job, worker, 0) for job, worker in zip(jobs, easy, strict=False)])
        for worker in [each for each in takers if each not in easy]:
            given += self._carefully(pool, worker, 0, types, takers[worker])
        return given

    def more(self, pool: PoolId, worker: WorkerId, slots: range, kind: str, models: Models) -> list[Claim]:
        """The rest of a batch: further jobs of one type for the same worker, each in a slot of its own."""
        if not slots:
            return []
        jobs = self._in_line(pool, [worker], len(slots), [kind]) if self._unhindered(worker) else None
        if jobs is not None:
            return self._give(
                pool, [Taking(job, worker, slot) for job, slot in zip(jobs, slots, strict=False)]
            )
        given: list[Claim] = []
        for slot in slots:
            one = self._carefully(pool, worker, slot, [kind], models)
            if not one:
                break
            given += one
        return given

    def _unhindered(self, worker: WorkerId) -> bool:
        return not self.not_types and not self.rules.limits_running and self._narrow(worker) is None

    def _narrow(self, worker: WorkerId) -> int | None:
        """How much of its GPU a worker has, where others hold leases on it; a shadow hinders nobody."""
        room = self.rooms.get(worker)
        if room is None or self.services.leasing.mode is not LeaseMode.ON:
            return None
        if any(self._given.get(gpu, worker) != worker for gpu in room.gpus):
            return 0  # the room was measured before that; there is another round
        return None if room.whole else room.free_mb

    def _apart(self, takers: Sequence[WorkerId]) -> list[WorkerId]:
        """Those who share no GPU: two that do would both find it free."""
        apart: list[WorkerId] = []
        taken: set[str] = set()
        for worker in takers:
            room = self.rooms.get(worker)
            if room is None or taken.isdisjoint(room.gpus):
                apart.append(worker)
                taken.update(room.gpus if room else ())
        return apart

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
        if any(job.needs_gpu for job in jobs) and not self.no_gpu.isdisjoint(takers):
            return None
        return jobs if all(job.plain for job in jobs) else None

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
                mine = claim_sql.next_jobs(self.tx, pool, number + _of(jobs, agent), types, agent)
                fresh = [job for job in mine if job.job_id not in known]
                jobs += fresh
                if len(fresh) < number:
                    waiting.remove(agent)
        return jobs if all(job.plain for job in jobs) else None

    def _carefully(
        self, pool: PoolId, worker: WorkerId, slot: int, types: Sequence[str], models: Models
    ) -> list[Claim]:
        room_mb = self._narrow(worker)
        if room_mb == 0:
            return []
        changed = self.changed.get(worker)
        loaded = Loaded(
            here=models,
            elsewhere=claim_sql.loaded_elsewhere(self.tx, pool, worker),
            settled=changed is None or self.tx.now() - changed >= self.services.policy.model_dwell,
        )
        job = self._next(pool, lambda: self._selector(worker, types, room_mb, loaded), loaded)
        if job is None:
            return []
        if job.model is not None and job.model not in models:
            claim_sql.note_change(self.tx, worker, job.model)
        return self._give(pool, [Taking(job, worker, slot)])

    def _next(self, pool: PoolId, wanted: Callable[[], JobSelector], loaded: Loaded) -> Waiting | None:
        """Agents that take turns are looked at one after the other; without turns, all at once."""
        if not self.rules.fair:
            return self._with_place(lambda: claim_sql.heads_of_all(self.tx, pool, wanted()), loaded)
        for agent in self._agents(pool, wanted):
            job = self._with_place(
                lambda agent=agent: claim_sql.heads(self.tx, pool, wanted(), agent), loaded
            )
            if job is not None:
                return job
        return None

    def _with_place(self, heads: Callable[[], Sequence[Waiting]], loaded: Loaded) -> Waiting | None:
        """What is full is left out, and the look is repeated without it."""
        while True:
            job = self._best(heads(), loaded)
            if job is None or self._has_place(job):
                return job

    def _agents(self, pool: PoolId, wanted: Callable[[], JobSelector]) -> Iterator[str]:
        return claim_sql.agents_behind(self.tx, pool, self.services.turns.last(pool), wanted)

    def _selector(
        self, worker: WorkerId, types: Sequence[str], room_mb: int | None, loaded: Loaded
    ) -> JobSelector:
        shut_out = self.rules.default.max_running == 0
        return JobSelector(
            types=types,
            no_gpu=worker in self.no_gpu,
            not_types=self.not_types,
            only_agents=frozenset(self.rules.agents) if shut_out else None,
            not_agents=frozenset(self._full_agents),
            not_keys=frozenset(self._full_keys),
            room_mb=room_mb,
            loaded=loaded,
            overdue_before=self._overdue_before,
        )

    @property
    def _overdue_before(self) -> datetime:
        return self.tx.now() - self.services.policy.model_wait

    def _best(self, heads: Sequence[Waiting], loaded: Loaded) -> Waiting | None:
        bound = self._overdue_before
        judged = {Head(job.model, job.place, overdue=job.run_at <= bound): job for job in heads}
        chosen = best(list(judged), loaded)
        return None if chosen is None else judged[chosen]

    def _has_place(self, job: Waiting) -> bool:
        """Counted while the key is locked, so that two replicas cannot both give out its last place.

        With the first that is full all others are learned, so that many of them cost no more than one.
        """
        key, most = job.concurrency_key, self.rules.limits_of(job.agent).max_running
        if most is not None:
            claim_sql.lock_key(self.tx, claim_sql.agent_key(job.agent))
            if claim_sql.running_of_agent(self.tx, job.agent) >= most:
                self._full_agents |= {
                    job.agent,
                    *self.rules.full_agents(claim_sql.running_of_agents(self.tx)),
                }
                return False
        if key is not None:
            claim_sql.lock_key(self.tx, key)
            if claim_sql.running_of_key(self.tx, key) >= self.rules.most_of(key):
                running = claim_sql.running_of_keys(self.tx)
                full = {each for each, count in running.items() if count >= self.rules.most_of(each)}
                self._full_keys |= {key, *full}
                return False
        return True

    def _give(self, pool: PoolId, taking: Sequence[Taking]) -> list[Claim]:
        """The claim and the lease together, or neither (L5)."""
        claims = claim_sql.claim(self.tx, pool, taking, self.services.policy.claim_ttl)
        for claim, each in zip(claims, taking, strict=True):
            self.services.turns.served(pool, each.job.agent)
            room = self.rooms.get(each.worker_id)
            if room is not None and each.slot == 0:
                self._given |= dict.fromkeys(room.gpus, each.worker_id)
                leases_sql.occupy(
                    self.tx,
                    each.worker_id,
                    agent=each.job.agent,
                    gpus=room.gpus,
                    memory_mb=each.job.gpu_memory_mb,
                    job_id=each.job.job_id,
                    expires_at=claim.expires_at,
                )
        return claims


def _of(jobs: Sequence[Waiting], agent: str) -> int:
    return sum(1 for job in jobs if job.agent == agent)


_TRIES = 5


def claim_job(services: Services, worker_id: WorkerId, types: Sequence[str] = ()) -> Claim | None:
    """The next job of the worker's pool; nothing when it is not active or already has one."""
    found = claim_jobs(services, [worker_id], types)
    return found[0] if found else None


def claim_jobs(services: Services, worker_ids: Sequence[WorkerId], types: Sequence[str] = ()) -> list[Claim]:
    """One job for each worker that is active and free, as far as there are jobs in its pool."""
    return claim_for(services, {worker_id: Ask(types=tuple(types)) for worker_id in worker_ids})


def claim_for(services: Services, asks: Mapping[WorkerId, Ask]) -> list[Claim]:
    """What each worker asks for, as far as it is there. A job of a type that nobody knows waits (J1)."""
    if len(asks) > MOST_LISTED:
        raise InvalidRequest(f"{len(asks)} workers asked at once, the limit is {MOST_LISTED}")
    for worker_id, ask in asks.items():
        check_name("worker_id", worker_id, 128)
        check_ask(ask)
    if not asks:
        return []
    services.types.note(services.database, asks)
    rules = services.rules()
    for _ in range(_TRIES):
        try:
            return services.database.transact(lambda tx: give(tx, services, asks, rules))
        except Duplicate:  # a second request of one of these workers got its job in this very moment
            continue
    return []


def held_claims(services: Services, worker_id: WorkerId, incarnation: str | None = None) -> list[ClaimKey]:
    """What this worker holds, be it that the answer with a claim never reached it.

    A second process under the same name must not take what the first is at work on for unheard of, so what another
    incarnation has begun is left out.
    """
    check_name("worker_id", worker_id, 128)
    return services.database.read(lambda tx: claim_sql.held_keys(tx, worker_id, incarnation))


def check_ask(ask: Ask) -> None:
    if len(ask.types) > MOST_LISTED:
        raise InvalidRequest(f"{len(ask.types)} types were named, the limit is {MOST_LISTED}")
    for kind in ask.types:
        check_name("type", kind, 64)
    if ask.beside and len(ask.types) != 1:
        raise InvalidRequest(f"{len(ask.types)} types were named: a batch is filled up with jobs of one")
    for model in ask.models:
        check_model("model", model)
    for kind, most in ask.most.items():
        check_name("type", kind, 64)
        if not 1 <= most + ask.beside <= MOST_AT_ONCE:
            raise InvalidRequest(f"most of {kind} is {most}: it must be from 1 to {MOST_AT_ONCE}")


def give(tx: Tx, services: Services, asks: Mapping[WorkerId, Ask], rules: ControlPolicy) -> list[Claim]:
    """The same, within a transaction that does more."""
    lost = [worker_id for worker_id, ask in asks.items() if ask.resume]
    given = [each for each in claim_sql.held(tx, lost) if _runs(asks[each.worker_id], each)] if lost else []
    empty = [worker_id for worker_id, ask in asks.items() if not ask.beside]
    free = claim_sql.free_workers(tx, empty) if empty else []
    fuller = [worker_id for worker_id, ask in asks.items() if ask.beside]
    active = [found for worker_id in fuller if (found := claim_sql.active_worker(tx, worker_id))]
    choice = Choice.of(tx, services, rules, [*free, *active])
    for (pool, types), workers in sorted(_lines(free, asks).items()):
        given += _take(choice, pool, types, {worker: asks[worker] for worker in workers})
    for each in active:
        given += _fill_up(choice, each, asks[each.worker_id])
    return given


def _runs(ask: Ask, claim: Claim) -> bool:
    """A worker that came back with fewer types is not handed what it cannot run: that claim runs out."""
    return not ask.types or claim.type in ask.types


def _lines(
    free: Sequence[Free], asks: Mapping[WorkerId, Ask]
) -> Mapping[tuple[PoolId, tuple[str, ...]], list[WorkerId]]:
    """Those who would take the same jobs."""
    lines: defaultdict[tuple[PoolId, tuple[str, ...]], list[WorkerId]] = defaultdict(list)
    for each in free:
        lines[each.pool, asks[each.worker_id].types].append(each.worker_id)
    return lines


def _take(choice: Choice, pool: PoolId, types: tuple[str, ...], asks: Mapping[WorkerId, Ask]) -> list[Claim]:
    taken = choice.first(pool, types, {worker: ask.models for worker, ask in asks.items()})
    for first in tuple(taken):
        ask = asks[first.worker_id]
        slots = range(1, ask.most.get(first.type, 1))
        taken += choice.more(pool, first.worker_id, slots, first.type, ask.models)
    _begin(choice.tx, [claim for claim in taken if asks[claim.worker_id].begin], asks)
    return taken


def _fill_up(choice: Choice, worker: Free, ask: Ask) -> list[Claim]:
    """The slots behind those that it says to hold; one that is taken after all undoes everything (`Duplicate`)."""
    kind = ask.types[0]
    slots = range(ask.beside, ask.beside + ask.most.get(kind, 1))
    taken = choice.more(worker.pool, worker.worker_id, slots, kind, ask.models)
    _begin(choice.tx, taken if ask.begin else [], {worker.worker_id: ask})
    return taken


def _begin(tx: Tx, taken: Sequence[Claim], asks: Mapping[WorkerId, Ask]) -> None:
    now = tx.now()
    by_worker: defaultdict[WorkerId, list[Claim]] = defaultdict(list)
    for claim in taken:
        by_worker[claim.worker_id].append(claim)
    for worker, mine in by_worker.items():
        due = [(claim.key, now + claim.timeout if claim.timeout else None) for claim in mine]
        running_sql.start(tx, due, f"worker:{worker}", worker, asks[worker].incarnation)
