"""Leading: taken when it is free, renewed while we can, and given up as soon as we are not sure."""

from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Lock

import structlog

from herdsman.core.errors import StoreUnavailable
from herdsman.ports import Clock
from herdsman.store import leader
from herdsman.store.database import Database, Tx
from herdsman.store.faults import Duplicate
from herdsman.store.leader import Term

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPolicy:
    ttl: timedelta = timedelta(seconds=10)
    renew: timedelta = timedelta(seconds=2)
    margin: timedelta = timedelta(seconds=1)
    """We stop believing this much before the database would."""


class Leadership:
    """Our own view of who leads. Two may believe that they lead; `fence` lets only one of them write."""

    def __init__(self, database: Database, clock: Clock, holder: str, policy: LeaderPolicy) -> None:
        self._database = database
        self._clock = clock
        self._policy = policy
        self._lock = Lock()
        self._term: Term | None = None
        self._sure_until = 0.0
        self.holder = holder

    @property
    def term(self) -> Term | None:
        """The term that we are sure to be in right now."""
        with self._lock:
            return self._term if self._clock.monotonic() < self._sure_until else None

    def campaign(self) -> Term | None:
        """Take or renew once. What is not answered is not ours, but what we were sure of stays so until it ends."""
        # Counted from before the call: the database's own count began no earlier.
        asked = self._clock.monotonic()
        try:
            term = self._database.transact(lambda tx: leader.take(tx, self.holder, self._policy.ttl))
        except (StoreUnavailable, Duplicate) as error:
            log.warning("leader.unsure", holder=self.holder, reason=str(error))
            return self.term
        self._remember(term, asked)
        return term

    def fence(self, tx: Tx, epoch: int) -> None:
        """To be called first in every transaction of the leader."""
        leader.require(tx, self.holder, epoch)

    def resign(self) -> None:
        with self._lock:
            term, self._term, self._sure_until = self._term, None, 0.0
        if term is not None:
            self._database.transact(lambda tx: leader.resign(tx, self.holder, term.epoch))
            log.info("leader.resigned", holder=self.holder, epoch=term.epoch)

    def run(self, stopping: Event) -> None:
        while not stopping.is_set():
            self.campaign()
            stopping.wait(self._policy.renew.total_seconds())
        self.resign()

    def _remember(self, term: Term | None, asked: float) -> None:
        with self._lock:
            before, self._term = self._term, term
            life = self._policy.ttl - self._policy.margin
            self._sure_until = asked + life.total_seconds() if term else 0.0
        if term is not None and (before is None or before.epoch != term.epoch):
            log.info("leader.elected", holder=term.holder, epoch=term.epoch)
        elif term is None and before is not None:
            log.warning("leader.lost", holder=self.holder, epoch=before.epoch)
