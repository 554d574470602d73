"""The fleet as the database knows it, with what a listing of instances adds to that."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from herdsman.control.zones import local_times
from herdsman.core.fleet import SeenPool, SeenWorker, Snapshot, Unseen
from herdsman.core.instances import Instance, InstanceState
from herdsman.core.model import DEFAULT_POOL, PoolId, WorkerId
from herdsman.core.phases.promote import lack_of
from herdsman.core.policy import FleetPolicy
from herdsman.core.pools import Pool, PoolNews, ServedBy, last_used, news_of, undeclared, with_life
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.core.scaling.registry import OURS
from herdsman.db.connection import Tx
from herdsman.store import cycles, installation, leader, ledger, pools, sight, waiting

BLIND = "the provider could not be looked at: "
"""How a recorded cycle begins to say that it saw no instances."""

_USUAL = FleetPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRules:
    pools: Mapping[PoolId, FleetPolicy] = field(default_factory=lambda: {DEFAULT_POOL: _USUAL})
    """Those of the settings; those that people ask for by name are read each time."""
    scaling: Mapping[str, ScalingPolicy] = field(default_factory=lambda: OURS)

    @property
    def base(self) -> FleetPolicy:
        return self.pools.get(DEFAULT_POOL, _USUAL)


def look(
    tx: Tx, rules: FleetRules, instances: tuple[Instance, ...] | Unseen
) -> tuple[Snapshot, list[PoolNews]]:
    """With what is to be noted of pools."""
    workers = sight.see_workers(tx, rules.pools.values())
    # Who has changed the settings since has named it there: that is what counts.
    named = {each.pool_id: each for each in pools.observed(tx) if each.pool_id not in rules.pools}
    by_pool = _by_pool(workers, named)
    news = [news_of(pool, by_pool[name], tx.now()) for name, pool in named.items()]
    known = installation.find(tx)
    listed = () if isinstance(instances, Unseen) else instances
    term = leader.find(tx)
    snapshot = Snapshot(
        now=tx.now(),
        beats_since=None if term is None else term.beats_since,
        pools=_pools(tx, rules, workers, named, by_pool),
        workers=workers,
        instances=instances,
        spent=ledger.spent(tx),
        policies=rules.scaling,
        most_together=rules.base.max_workers,
        installation=None if known is None else known.id,
        orphans={} if known is None else known.orphans,
        doubt="" if known is None else known.doubt(installation.place_of(tx), (each.name for each in listed)),
    )
    return snapshot, [each for each in news if each is not None]


def look_without_provider(tx: Tx, rules: FleetRules) -> Snapshot:
    """As if every living worker had its instance; or as blind as the last cycle was."""
    seen, _ = look(tx, rules, ())
    last = waiting.last_cycle(tx)
    said = "" if last is None else last.skipped
    if said.startswith(BLIND):
        return replace(seen, instances=Unseen(said.removeprefix(BLIND)))
    return replace(seen, instances=_as_if_listed(seen.workers))


def why_not_active(tx: Tx, rules: FleetRules, worker_id: WorkerId) -> str:
    """What keeps a starting worker from becoming active, in words. Where `rules` are not those of the leader, as those of
    a worker beside the database may be, the leader's last cycle has the word."""
    worker = sight.see_worker(tx, worker_id)
    policy = rules.pools.get(worker.pool)
    if policy is None:
        row = pools.find(tx, worker.pool)
        by_hand = row is None or row.served_by is ServedBy.HAND
        policy = replace(rules.base, require_gpu=rules.base.require_gpu and not by_hand)
    lack = lack_of(worker, policy, tx.now())
    if lack is not None:
        return lack
    term = leader.find(tx)
    if term is None or term.expires_at <= tx.now():
        return "no control plane leads, and only a leader makes workers active; start one: herdsman up"
    last, _ = cycles.listed(tx, lambda _: True, before=None, limit=1)
    noted = (step["why"] for each in last for step in each.steps if step.get("about") == worker_id)
    return next(noted, "the next control cycle makes it active")


def _as_if_listed(workers: Sequence[SeenWorker]) -> tuple[Instance, ...]:
    return tuple(
        Instance(ref=each.instance_ref, name=each.instance_name, state=InstanceState.RUNNING)
        for each in workers
        if each.alive and each.instance_ref is not None and each.instance_name is not None
    )


def _pools(
    tx: Tx,
    rules: FleetRules,
    workers: Sequence[SeenWorker],
    named: Mapping[PoolId, Pool],
    by_pool: Mapping[PoolId, Sequence[SeenWorker]],
) -> tuple[SeenPool, ...]:
    kept = {**rules.pools, **dict.fromkeys(named, rules.base)}
    strange = {each.pool for each in workers if each.alive}.difference(kept)
    seen = sight.see_pools(tx, {**kept, **dict.fromkeys(sorted(strange), rules.base)})
    awaited = pools.awaited(tx) if named else frozenset[PoolId]()
    local = local_times((zone for each in named.values() for zone in each.rules.schedule.zones), tx.now())

    def one(pool: SeenPool) -> SeenPool:
        if pool.id in strange:
            return undeclared(pool)
        row = named.get(pool.id)
        if row is None:
            return replace(pool, shares=pool.id == DEFAULT_POOL)
        wanted = pool.id in awaited
        used = tx.now() if wanted else last_used(row, by_pool[pool.id], tx.now())
        return with_life(pool, row, used=used, waiting=wanted, local=local)

    return tuple(one(pool) for pool in seen)


def _by_pool(
    workers: Sequence[SeenWorker], named: Mapping[PoolId, Pool]
) -> Mapping[PoolId, Sequence[SeenWorker]]:
    found: defaultdict[PoolId, list[SeenWorker]] = defaultdict(list)
    for each in workers if named else ():
        found[each.pool].append(each)
    return found
