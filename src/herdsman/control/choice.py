"""Which jobs go to which workers, within one transaction.

Almost always the first in line is right, and many are given out by two statements. Where agents have to take turns,
jobs want models or share keys, types are stopped, or a GPU is not wholly free, the choice is made with more care.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from herdsman.control.services import Services
from herdsman.core.control_policy import ControlPolicy
from herdsman.core.leasing import LeaseMode
from herdsman.core.model import Claim, PoolId, WorkerId
from herdsman.core.placement import Head, JobSelector, Loaded, best, shares
from herdsman.db.connection import Tx
from herdsman.store import choosing, claiming, leases
from herdsman.store.claiming import Free, Taking, Waiting
from herdsman.store.leases import Room

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
            rooms=leases.rooms(tx, names, services.leasing) if leased else {},
            not_types=choosing.held_types(tx) if stopped else frozenset(),
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
        jobs = claiming.next_jobs(self.tx, pool, count, types)
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
            if joining and choosing.want_models(self.tx, pool, joining, types):
                return None
            waiting += joining
            if not waiting:
                break
            known = {job.job_id for job in jobs}
            for agent, number in shares(waiting, count - len(jobs)).items():
                mine = claiming.next_jobs(self.tx, pool, number + _of(jobs, agent), types, agent)
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
        loaded = self._loaded(pool, worker, models)
        job = self._next(pool, lambda: self._selector(worker, types, room_mb, loaded), loaded)
        if job is None:
            return []
        if job.model is not None and job.model not in models:
            choosing.note_change(self.tx, worker, job.model)
        return self._give(pool, [Taking(job, worker, slot)])

    def _next(self, pool: PoolId, wanted: Callable[[], JobSelector], loaded: Loaded) -> Waiting | None:
        """Agents that take turns are looked at one after the other; without turns, all at once."""
        if not self.rules.fair:
            return self._with_place(lambda: choosing.heads_of_all(self.tx, pool, wanted()), loaded)
        for agent in self._agents(pool, wanted):
            job = self._with_place(lambda agent=agent: choosing.heads(self.tx, pool, wanted(), agent), loaded)
            if job is not None:
                return job
        return None

    def _with_place(self, heads: Callable[[], Sequence[Waiting]], loaded: Loaded) -> Waiting | None:
        """What is full is left out, and the look is repeated without it."""
        while True:
            job = self._best(heads(), loaded)
            if job is None or self._has_place(job):
                return job

    def _loaded(self, pool: PoolId, worker: WorkerId, models: Models) -> Loaded:
        changed = self.changed.get(worker)
        return Loaded(
            here=models,
            elsewhere=choosing.loaded_elsewhere(self.tx, pool, worker),
            settled=changed is None or self.tx.now() - changed >= self.services.policy.model_dwell,
        )

    def _agents(self, pool: PoolId, wanted: Callable[[], JobSelector]) -> Iterator[str]:
        return choosing.agents_behind(self.tx, pool, self.services.turns.last(pool), wanted)

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
            choosing.lock_key(self.tx, choosing.agent_key(job.agent))
            if choosing.running_of_agent(self.tx, job.agent) >= most:
                self._full_agents |= {job.agent, *self.rules.full_agents(choosing.running_of_agents(self.tx))}
                return False
        if key is not None:
            choosing.lock_key(self.tx, key)
            if choosing.running_of_key(self.tx, key) >= self.rules.most_of(key):
                running = choosing.running_of_keys(self.tx)
                full = {each for each, count in running.items() if count >= self.rules.most_of(each)}
                self._full_keys |= {key, *full}
                return False
        return True

    def _give(self, pool: PoolId, taking: Sequence[Taking]) -> list[Claim]:
        """The claim and the lease together, or neither (L5)."""
        claims = claiming.claim(self.tx, pool, taking, self.services.policy.claim_ttl)
        for claim, each in zip(claims, taking, strict=True):
            self.services.turns.served(pool, each.job.agent)
            room = self.rooms.get(each.worker_id)
            if room is not None and each.slot == 0:
                self._given |= dict.fromkeys(room.gpus, each.worker_id)
                leases.occupy(
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
