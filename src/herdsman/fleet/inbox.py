"""The leader's inbox: replicas that do not lead ask for a cycle through the database, and wait for its result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

import structlog

from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.errors import StaleWrite, StoreUnavailable
from herdsman.fleet import leader_sql
from herdsman.fleet.leader import Leadership
from herdsman.fleet.reconcile import Cycle, Reconciler
from herdsman.limits.commands import expire_pauses
from herdsman.loops.periodic import PeriodicLoop
from herdsman.ports import Clock, Threads

log = structlog.get_logger()
RECONCILE = "reconcile"
PATIENCE = timedelta(seconds=30)
"""So long somebody waits for the leader's answer; what is older is not acted on any more."""
LISTEN = timedelta(milliseconds=250)
TIDY = timedelta(seconds=5)
_LOOK_S = 0.1


@dataclass
class LeaderInbox:
    """Only the leader reads it. One cycle, begun after they were made, answers all requests that wait."""

    services: Services
    reconciler: Reconciler
    clock: Clock
    every: timedelta = LISTEN
    _tidied: float = field(default=float("-inf"))

    def loop(self, threads: Threads | None = None) -> PeriodicLoop:
        interval = self.every.total_seconds()

        def turn() -> float:
            self.answer_waiting()
            return interval

        return PeriodicLoop(
            "leader-inbox",
            turn,
            retry_on=(StoreUnavailable, StaleWrite),
            on_error=lambda error: log.warning("requests.postponed", reason=str(error)),
            backoff=(interval, interval),
            clock=self.clock,
            threads=threads,
        )

    def answer_waiting(self) -> int:
        """How many were answered."""
        term = self.leadership.term
        if term is None:
            return 0
        if self.clock.monotonic() - self._tidied >= TIDY.total_seconds():
            # What nobody waits for, and holds whose time is over; neither is missed while nobody leads.
            self._tidied = self.clock.monotonic()
            expire_pauses(self.services)
            self.services.database.transact(leader_sql.prune_requests)
        listed = self.services.database.read(lambda tx: leader_sql.waiting_requests(tx, PATIENCE))
        return self._answer(listed, term.epoch) if listed else 0

    @property
    def leadership(self) -> Leadership:
        return self.reconciler.leadership

    def _answer(self, listed: list[str], epoch: int) -> int:
        self._write(epoch, lambda tx: leader_sql.take_request(tx, listed))
        ran = self.reconciler.tick()
        if ran.epoch is None:  # no longer ours: whoever leads next finds them
            return 0
        self._write(epoch, lambda tx: leader_sql.finish_request(tx, listed, cycle_document(ran)))
        log.info("requests.answered", count=len(listed))
        return len(listed)

    def _write(self, epoch: int, change: Callable[[Tx], None]) -> None:
        def fenced(tx: Tx) -> None:
            self.leadership.fence(tx, epoch)
            change(tx)

        self.services.database.transact(fenced)


def cycle_document(ran: Cycle) -> dict[str, Any]:
    """A cycle as it is answered with."""
    return {**ran.summary(), "complete": ran.complete, "steps": ran.steps()}


def ask_leader(
    services: Services,
    request_id: str,
    who: str,
    clock: Clock,
    stopping: Event,
    patience: timedelta = PATIENCE,
) -> Mapping[str, Any] | None:
    """What the leader saw and did in a cycle of its own; None when nobody answered in time."""
    deadline = clock.monotonic() + patience.total_seconds()
    services.database.transact(lambda tx: leader_sql.ask_leader_row(tx, request_id, RECONCILE, who))
    while not stopping.is_set() and clock.monotonic() < deadline:
        found = services.database.read(lambda tx: leader_sql.find_request(tx, request_id))
        if found is None or found.done_at is not None:
            return None if found is None else found.outcome
        stopping.wait(_LOOK_S)
    return None
