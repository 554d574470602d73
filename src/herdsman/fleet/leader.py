"""Leadership of one replica: taken when it is free, renewed, and given up as soon as it is not certain."""

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock

import structlog

from herdsman.db.advisory_lock import SessionLock
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.errors import OutcomeUnknown, StaleWrite, StoreUnavailable
from herdsman.fleet import leader_sql
from herdsman.fleet.leader_sql import Candidate, Term
from herdsman.loops.periodic import PeriodicLoop
from herdsman.ports import Clock, Threads

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPolicy:
    ttl: timedelta = timedelta(seconds=10)
    renew: timedelta = timedelta(seconds=2)
    follow: timedelta = timedelta(milliseconds=250)
    """Between two tries of one that does not lead: it is how long an empty place stays empty."""
    margin: timedelta = timedelta(seconds=1)
    """We stop believing this much before the database would."""
    hold: timedelta = timedelta(0)
    """How long the only replica lets workers go on with their jobs while the database is away."""


class Leadership:
    """Our own view of who leads. Two may believe that they lead; `fence` lets only one of them write."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        holder: str,
        policy: LeaderPolicy,
        session_lock: SessionLock | None = None,
        departed: tuple[str, ...] = (),
    ) -> None:
        """`departed` are holders that are known to have ended, such as this replica before its restarts."""
        self._database = database
        self._session_lock = session_lock
        self._clock = clock
        self._policy = policy
        self._lock = Lock()
        self._term: Term | None = None
        self._sure_until = 0.0
        self._departed = departed
        self._written_at: float | None = None
        """When the database's clock was read for the last renewal that may have been stored: it stands in the row."""
        self._followed_at: float | None = None
        self._hold_until = 0.0
        """Until then we may answer for the claims of workers that cannot be heard, should the database go away."""
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
        locked = self._lock_session()
        with self._lock:
            policy, wrote = self._policy, self._written_at
            who = Candidate(
                holder=self.holder,
                ttl=policy.ttl,
                epoch=None if self._term is None else self._term.epoch,
                hold=policy.hold,
                away=wrote is not None and self._clock.monotonic() - wrote >= policy.ttl.total_seconds(),
                departed=self._departed,
                # A lock of ours was free: the session of whoever leads has ended. One kept from our own term says nothing.
                holder_gone=locked and self._term is None,
            )
        tried: list[tuple[float, Term | None]] = []

        def take(tx: Tx) -> Term | None:
            read_at = self._clock.monotonic()
            term = leader_sql.take_leadership(tx, who)
            tried.append((read_at, term))
            # Followers show themselves to the leader at the pace of its renewals; every try would be a write too many.
            pace = self._policy.renew.total_seconds()
            if term is None and (self._followed_at is None or read_at - self._followed_at >= pace):
                self._followed_at = read_at
                leader_sql.follow_leader(tx, self.holder)
            return term

        try:
            term = self._database.transact(take)
        except OutcomeUnknown as error:
            # Either row may be there now, the one before or this one: only what both promise is promised.
            read_at, written = tried[-1]
            with self._lock:
                self._written_at = read_at
                if written is None or written.holds_until is None:
                    self._hold_until = 0.0
            log.warning("leader.unsure", holder=self.holder, reason=str(error))
            term = self.term
        except (StoreUnavailable, Duplicate) as error:
            log.warning("leader.unsure", holder=self.holder, reason=str(error))
            term = self.term
        else:
            self._remember(term, asked, read_at=tried[-1][0])
        if locked and term is None:
            self._unlock_session()
        elif term is not None and not locked:
            self._lock_session()  # who left us the row let the lock go just before
        return term

    @property
    def holds_claims(self) -> bool:
        """Whether we know that no claim is taken back before its worker had the time to be heard again.

        We led last, as the only replica, and have not renewed for a whole term. So nobody judges claims now, and who
        renews next, we or another, sees the break and begins to count from there (docs/decisions/0021).
        """
        now = self._clock.monotonic()
        with self._lock:
            if self._term is None or self._written_at is None:
                return False
            broken = now - self._written_at >= self._policy.ttl.total_seconds()
            return broken and now < self._hold_until

    def fence(self, tx: Tx, epoch: int) -> None:
        """To be called first in every transaction of the leader."""
        leader_sql.require_leadership(tx, self.holder, epoch)

    def require_sure(self, epoch: int) -> None:
        """To be called before what the fence cannot hold back: a call to the outside that must not come late."""
        term = self.term
        if term is None or term.epoch != epoch:
            raise StaleWrite(f"{self.holder} is no longer sure to lead with epoch {epoch}")

    def resign(self) -> None:
        with self._lock:
            term, self._term, self._sure_until, self._hold_until = self._term, None, 0.0, 0.0
        self._unlock_session()
        if term is None:
            return
        try:
            self._database.transact(lambda tx: leader_sql.resign_leadership(tx, self.holder, term.epoch))
        except StoreUnavailable as error:
            log.warning("leader.not_resigned", holder=self.holder, reason=str(error))
        else:
            log.info("leader.resigned", holder=self.holder, epoch=term.epoch)

    def loop(self, threads: Threads | None = None) -> PeriodicLoop:
        def turn() -> float:
            return (self._policy.renew if self.campaign() else self._policy.follow).total_seconds()

        return PeriodicLoop("leadership", turn, at_end=self.resign, clock=self._clock, threads=threads)

    def _lock_session(self) -> bool:
        return self._session_lock is not None and self._session_lock.take()

    def _unlock_session(self) -> None:
        if self._session_lock is not None:
            self._session_lock.release()

    def _remember(self, term: Term | None, asked: float, *, read_at: float) -> None:
        with self._lock:
            before, self._term = self._term, term
            life = self._policy.ttl - self._policy.margin
            self._sure_until = asked + life.total_seconds() if term else 0.0
            holds = term is not None and term.holds_until is not None
            self._hold_until = asked + self._policy.hold.total_seconds() if holds else 0.0
            if term is not None:
                self._written_at = read_at
        if term is not None and (before is None or before.epoch != term.epoch):
            log.info("leader.elected", holder=term.holder, epoch=term.epoch)
        elif term is None and before is not None:
            log.warning("leader.lost", holder=self.holder, epoch=before.epoch)
