"""Reads the state of the fleet, from the database and the provider, into one snapshot."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import structlog

from herdsman.db.connection import Database, Tx
from herdsman.errors import InvalidRequest, ProviderRejected, ProviderUnavailable
from herdsman.explain import sql as explain_sql
from herdsman.fleet import history_sql, installation_sql, leader_sql, snapshot_sql, sql, stats_sql
from herdsman.fleet.leader import Leadership
from herdsman.fleet.model import LEAP, FleetPolicy, Instance
from herdsman.fleet.phases.health import lack_of
from herdsman.fleet.phases.instances import orphans
from herdsman.fleet.scaling import OURS, ScalingPolicy
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.fleet.snapshot_sql import Listed
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.pools import sql as pools_sql
from herdsman.pools.rules import Pool, PoolNews, ServedBy, last_used, news_of, undeclared, with_life
from herdsman.ports import Provider
from herdsman.wire import new_installation_id

log = structlog.get_logger()
BLIND = "the provider could not be listed: "
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


def read_snapshot(
    tx: Tx, rules: FleetRules, instances: tuple[Instance, ...] | ListingFailed
) -> tuple[Snapshot, list[PoolNews]]:
    """With what is to be noted of pools."""
    workers = snapshot_sql.read_workers(tx, rules.pools.values())
    # Who has changed the settings since has named it there: that is what counts.
    named = {each.pool_id: each for each in pools_sql.observed_pools(tx) if each.pool_id not in rules.pools}
    by_pool: defaultdict[PoolId, list[WorkerSnapshot]] = defaultdict(list)
    for each in workers if named else ():
        by_pool[each.pool].append(each)
    news = [news_of(pool, by_pool[name], tx.now()) for name, pool in named.items()]
    known = installation_sql.find(tx)
    listed = () if isinstance(instances, ListingFailed) else instances
    term = leader_sql.find_leader(tx)
    snapshot = Snapshot(
        now=tx.now(),
        beats_since=None if term is None else term.beats_since,
        pools=_pools(tx, rules, workers, named, by_pool),
        workers=workers,
        instances=instances,
        spent=stats_sql.spent_since(tx),
        policies=rules.scaling,
        most_together=rules.base.max_workers,
        installation=None if known is None else known.id,
        orphans={} if known is None else known.orphans,
        doubt="" if known is None else known.doubt(installation_sql.place_of(tx), (each.name for each in listed)),
    )
    return snapshot, [each for each in news if each is not None]


def observe_without_provider(tx: Tx, rules: FleetRules) -> Snapshot:
    """As if every living worker had its instance; or as blind as the last cycle was."""
    seen, _ = read_snapshot(tx, rules, ())
    last = explain_sql.last_cycle(tx)
    said = "" if last is None else last[1]
    if said.startswith(BLIND):
        return replace(seen, instances=ListingFailed(said.removeprefix(BLIND)))
    return seen.all_listed()


def why_not_active(tx: Tx, rules: FleetRules, worker_id: WorkerId) -> str:
    """What keeps a starting worker from becoming active, in words. Where `rules` are not those of the leader, as those of
    a worker beside the database may be, the leader's last cycle has the word."""
    worker = snapshot_sql.read_worker(tx, worker_id)
    policy = rules.pools.get(worker.pool)
    if policy is None:
        row = pools_sql.find_pool(tx, worker.pool)
        by_hand = row is None or row.served_by is ServedBy.HAND
        policy = replace(rules.base, require_gpu=rules.base.require_gpu and not by_hand)
    lack = lack_of(worker, policy, tx.now())
    if lack is not None:
        return lack
    term = leader_sql.find_leader(tx)
    if term is None or term.expires_at <= tx.now():
        return "no control plane leads, and only a leader makes workers active; start one: herdsman up"
    last, _ = history_sql.list_cycles(tx, lambda _: True, before=None, limit=1)
    noted = (step["reason"] for each in last for step in each.steps if step.get("about") == worker_id)
    return next(noted, "the next control cycle makes it active")


def _pools(
    tx: Tx,
    rules: FleetRules,
    workers: Sequence[WorkerSnapshot],
    named: Mapping[PoolId, Pool],
    by_pool: Mapping[PoolId, Sequence[WorkerSnapshot]],
) -> tuple[PoolSnapshot, ...]:
    kept = {**rules.pools, **dict.fromkeys(named, rules.base)}
    strange = {each.pool for each in workers if each.alive}.difference(kept)
    seen = snapshot_sql.read_pools(tx, {**kept, **dict.fromkeys(sorted(strange), rules.base)})
    awaited = pools_sql.awaited_pools(tx) if named else frozenset[PoolId]()
    local = local_times((zone for each in named.values() for zone in each.rules.schedule.zones), tx.now())

    def one(pool: PoolSnapshot) -> PoolSnapshot:
        if pool.id in strange:
            return undeclared(pool)
        row = named.get(pool.id)
        if row is None:
            return replace(pool, shares=pool.id == DEFAULT_POOL)
        wanted = pool.id in awaited
        used = tx.now() if wanted else last_used(row, by_pool[pool.id], tx.now())
        return with_life(pool, row, used=used, waiting=wanted, local=local)

    return tuple(one(pool) for pool in seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    database: Database
    provider: Provider
    leadership: Leadership
    pools: Mapping[PoolId, FleetPolicy]
    """Those of the settings; those that people ask for by name are read each time."""
    scaling: Mapping[str, ScalingPolicy]
    new_id: Callable[[], str] = new_installation_id

    def observe(self, epoch: int) -> Snapshot:
        """What a cycle decides on. Absent instances, orphans and changes of pools are noted in the database."""
        seen, news = self._read()
        if seen.installation is None:

            def begin(tx: Tx) -> None:
                self.leadership.fence(tx, epoch)
                if installation_sql.find(tx) is None:
                    installation_sql.make(tx, self.new_id(), installation_sql.place_of(tx))

            self.database.transact(begin)
            seen, news = self._read()
        if seen.doubt:
            self._hold(seen, epoch)
            return seen
        listed = Listed()
        unowned: Mapping[str, datetime] = seen.orphans
        if not isinstance(seen.instances, ListingFailed):
            listed = snapshot_sql.listed_now(seen.workers, {each.name for each in seen.instances})
            # Since when; one that a complete listing lacks, or that has an owner now, is forgotten.
            unowned = {ref: seen.orphans.get(ref, seen.now) for ref in orphans(seen)}
        if not listed and not news and unowned == seen.orphans:
            return seen

        def note(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            sql.note_listed(tx, listed)
            pools_sql.note_pool(tx, news)
            installation_sql.note_orphans(tx, unowned)

        self.database.transact(note)
        # As if it were read again.
        absent: dict[WorkerId, datetime | None] = {**dict.fromkeys(listed.lost, seen.now), **dict.fromkeys(listed.back)}
        new = frozenset(listed.new)
        workers = tuple(
            replace(
                each,
                absent_since=absent.get(each.id, each.absent_since),
                listed_at=seen.now if each.id in new else each.listed_at,
            )
            if each.id in absent or each.id in new
            else each
            for each in seen.workers
        )
        return replace(seen, workers=workers, orphans=unowned)

    def observe_readonly(self) -> Snapshot:
        """The same without writing anything down."""
        return self._read()[0]

    def _read(self) -> tuple[Snapshot, list[PoolNews]]:
        """Instances come first: one that is listed has had its row since before it was asked for."""
        instances: tuple[Instance, ...] | ListingFailed
        try:
            instances = tuple(self.provider.list_instances())
        except (ProviderUnavailable, ProviderRejected) as error:
            instances = ListingFailed(str(error))
        rules = FleetRules(pools=self.pools, scaling=self.scaling)
        return self.database.read(lambda tx: read_snapshot(tx, rules, instances))

    def _hold(self, seen: Snapshot, epoch: int) -> None:
        """What was given out by a later state of this database is never given out again."""
        known = self.database.read(installation_sql.find)
        assert known is not None
        names = [] if isinstance(seen.instances, ListingFailed) else [each.name for each in seen.instances]
        ahead = known.ahead(names)
        if not ahead and (known.raised or not known.held):
            return  # done already; or it is at another place, and may be right about everything else

        def hold(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            installation_sql.hold(tx, ahead)

        if not known.held:
            self.database.transact(hold)
        raise_all(self.database, known.highest(names)[0], lambda tx: self.leadership.fence(tx, epoch))
        log.error("database.went_back", reason=known.held or ahead)


def raise_all(database: Database, highest: int, fence: Callable[[Tx], None] = lambda _: None) -> None:
    """Claim tokens first: the mark that all is raised comes last."""
    least = database.read(installation_sql.highest_token) + LEAP

    def some(tx: Tx) -> int:
        fence(tx)
        return installation_sql.raise_tokens(tx, least)

    def rest(tx: Tx) -> None:
        fence(tx)
        installation_sql.raise_numbers(tx, highest)

    while database.transact(some):
        pass
    database.transact(rest)


USUAL = "UTC"


def check_zone(name: str) -> None:
    if _zone(name) is None:
        raise InvalidRequest(f"timezone is {name!r}: use a name such as Europe/Berlin or UTC")


def local_times(zones: Iterable[str], now: datetime) -> Mapping[str, datetime]:
    """Always with `UTC`. A zone that this machine does not know is taken for UTC, and logged."""
    found: dict[str, datetime] = {}
    for name in {USUAL, *zones}:
        zone = _zone(name)
        if zone is None:
            log.warning("zone.unknown", zone=name)
        found[name] = now.astimezone(zone or UTC)
    return found


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, no name at all, or a folder of names
        return None
