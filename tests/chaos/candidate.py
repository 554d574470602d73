"""A replica that only leads. It never stops writing under the last epoch it had: the fence alone must stop it."""

import signal
from datetime import timedelta
from threading import Event, Thread

from sqlalchemy import text

from herdsman.db.advisory_lock import open_session_lock
from herdsman.db.connection import Database, Tx
from herdsman.errors import StaleWrite, StoreUnavailable
from herdsman.fleet.leader import LeaderPolicy, Leadership
from herdsman.ports import SystemClock

TABLES = {
    "PostgreSQL": "CREATE TABLE chaos_writes (id bigserial PRIMARY KEY, holder text, epoch bigint, refused int)",
    "MariaDB": "CREATE TABLE chaos_writes"
    " (id bigint AUTO_INCREMENT PRIMARY KEY, holder varchar(64), epoch bigint, refused int)",
}
WRITE = text("INSERT INTO chaos_writes (holder, epoch, refused) VALUES (:holder, :epoch, :refused)")
STEP = timedelta(milliseconds=30)
LOCK = "gpu_orchestrator_leader"


def lead(url: str, holder: str, policy: LeaderPolicy) -> None:
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    # As long as a term, as usual: it is also how long one that is stopped keeps the leader's row locked.
    database = Database(url, clock=SystemClock(), timeout=policy.ttl)
    lock = open_session_lock(database, LOCK, idle=policy.ttl)
    leadership = Leadership(database, SystemClock(), holder, policy, lock)
    loop = leadership.loop()
    campaigning = Thread(target=loop.run)
    campaigning.start()
    epoch = 0
    while not stopping.wait(STEP.total_seconds()):
        term = leadership.term
        epoch = term.epoch if term is not None else epoch
        if epoch:
            _write(database, leadership, epoch)
    loop.stop()
    campaigning.join()
    database.close()


def _write(database: Database, leadership: Leadership, epoch: int) -> None:
    def fenced(tx: Tx) -> None:
        leadership.fence(tx, epoch)
        tx.execute(WRITE, {"holder": leadership.holder, "epoch": epoch, "refused": 0})

    refused = {"holder": leadership.holder, "epoch": epoch, "refused": 1}
    try:
        database.transact(fenced)
    except StaleWrite:
        database.transact(lambda tx: tx.execute(WRITE, refused))
    except StoreUnavailable:
        return
