"""Looks at the fleet: first at the provider, then at the database, which knows of everything the provider shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from herdsman.control.leadership import Leadership
from herdsman.control.snapshot import FleetRules, look
from herdsman.core.errors import ProviderRejected, ProviderUnavailable
from herdsman.core.fleet import Snapshot, Unseen
from herdsman.core.installation import LEAP
from herdsman.core.instances import Instance
from herdsman.core.model import PoolId, WorkerId
from herdsman.core.phases.sweep import orphans
from herdsman.core.policy import FleetPolicy
from herdsman.core.pools import PoolNews
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.db.connection import Database, Tx
from herdsman.ports import Provider
from herdsman.store import fleet, installation, pools, sight
from herdsman.store.sight import Listed
from herdsman.wire.ids import new_installation_id

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    database: Database
    provider: Provider
    leadership: Leadership
    pools: Mapping[PoolId, FleetPolicy]
    """Those of the settings; those that people ask for by name are read each time."""
    scaling: Mapping[str, ScalingPolicy]
    new_id: Callable[[], str] = new_installation_id

    def look(self, epoch: int) -> Snapshot:
        """Instances come first: one that is listed has had its row since before it was asked for."""
        seen, news = self._look()
        if seen.installation is None:
            self.database.transact(lambda tx: self._begin(tx, epoch))
            seen, news = self._look()
        if seen.doubt:
            self._hold(seen, epoch)
            return seen
        listed, unowned = _listed(seen), _remembered(seen)
        if not listed and not news and unowned == seen.orphans:
            return seen
        self.database.transact(lambda tx: self._mark(tx, epoch, listed, news, unowned))
        return _marked(seen, listed, unowned)

    def glance(self) -> Snapshot:
        """The same without writing anything down."""
        return self._look()[0]

    def _look(self) -> tuple[Snapshot, list[PoolNews]]:
        instances = self._list()
        rules = FleetRules(pools=self.pools, scaling=self.scaling)
        return self.database.read(lambda tx: look(tx, rules, instances))

    def _list(self) -> tuple[Instance, ...] | Unseen:
        try:
            return tuple(self.provider.list_instances())
        except (ProviderUnavailable, ProviderRejected) as error:
            return Unseen(str(error))

    def _mark(
        self,
        tx: Tx,
        epoch: int,
        listed: Listed,
        news: Sequence[PoolNews],
        unowned: Mapping[str, datetime],
    ) -> None:
        self.leadership.fence(tx, epoch)
        fleet.note_listed(tx, listed)
        pools.note(tx, news)
        installation.note_orphans(tx, unowned)

    def _begin(self, tx: Tx, epoch: int) -> None:
        self.leadership.fence(tx, epoch)
        if installation.find(tx) is None:
            installation.make(tx, self.new_id(), installation.place_of(tx))

    def _hold(self, seen: Snapshot, epoch: int) -> None:
        """What was given out by a later state of this database is never given out again."""
        known = self.database.read(installation.find)
        assert known is not None
        names = [] if isinstance(seen.instances, Unseen) else [each.name for each in seen.instances]
        ahead = known.ahead(names)
        if known.raised and not ahead:
            return
        if not known.held and not ahead:
            return  # it is at another place, and may be right about everything else

        def hold(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            installation.hold(tx, ahead)

        if not known.held:
            self.database.transact(hold)
        raise_all(self.database, known.highest(names)[0], lambda tx: self.leadership.fence(tx, epoch))
        log.error("database.went_back", reason=known.held or ahead)


def raise_all(database: Database, highest: int, fence: Callable[[Tx], None] = lambda _: None) -> None:
    """Claim tokens first: the mark that all is raised comes last."""
    least = database.read(installation.highest_token) + LEAP

    def some(tx: Tx) -> int:
        fence(tx)
        return installation.raise_tokens(tx, least)

    def rest(tx: Tx) -> None:
        fence(tx)
        installation.raise_numbers(tx, highest)

    while database.transact(some):
        pass
    database.transact(rest)


def _remembered(seen: Snapshot) -> Mapping[str, datetime]:
    """Since when; one that a complete listing lacks, or that has an owner now, is forgotten."""
    if isinstance(seen.instances, Unseen):
        return seen.orphans
    return {ref: seen.orphans.get(ref, seen.now) for ref in orphans(seen)}


def _listed(seen: Snapshot) -> Listed:
    if isinstance(seen.instances, Unseen):
        return Listed()
    return sight.listed_now(seen.workers, {instance.name for instance in seen.instances})


def _marked(seen: Snapshot, listed: Listed, unowned: Mapping[str, datetime]) -> Snapshot:
    """As if it were read again."""
    absent: dict[WorkerId, datetime | None] = {
        **dict.fromkeys(listed.lost, seen.now),
        **dict.fromkeys(listed.back),
    }
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
