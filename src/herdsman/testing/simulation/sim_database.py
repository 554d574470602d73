"""The real store on an in-memory SQLite: every transaction is a point where the simulation may inject a fault."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, update

from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Contended
from herdsman.db.schema import installation as installation_table
from herdsman.db.upgrade import upgrade
from herdsman.errors import HerdsmanError, OutcomeUnknown, StoreUnavailable
from herdsman.fleet import installation_sql
from herdsman.fleet.model import Installation
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.world import ZERO, World

T = TypeVar("T")


class _Clock:
    """Of whichever world is at hand."""

    def __init__(self) -> None:
        self.world: World | None = None

    def monotonic(self) -> float:
        return 0.0 if self.world is None else self.world.now

    def sleep(self, duration: timedelta) -> None:
        if self.world is not None:
            self.world.clock.sleep(duration)


class WorldDatabase(Database):
    """One for many worlds, one after the other: what SQLAlchemy has compiled is kept."""

    def __init__(self, template: bytes | None = None) -> None:
        """`template` is a serialised database without rows; without one the schema is made anew."""
        self._clock_at_hand = _Clock()
        self._second: WorldDatabase | None = None
        self._open: Connection | None = None
        super().__init__(
            "sqlite://",
            clock=self._clock_at_hand,
            timeout=timedelta(seconds=10),
            clock_of=lambda _tx: ZERO if self.world is None else self.world.database_time(),
            chance=lambda: 0.5 if self.world is None else self.world.random.random(),
        )
        if template is None:
            upgrade(self)
        self._empty: bytes = template or self._driver_connection().serialize()

    @property
    def world(self) -> World | None:
        return self._clock_at_hand.world

    def enter(self, world: World, image: bytes | None = None) -> None:
        """As new, or with the rows of a serialised database."""
        self._driver_connection().deserialize(image or self._empty)
        self._clock_at_hand.world = world

    def backup(self) -> tuple[bytes, int]:
        """The database as it is now, and the number of the last start that it remembers."""
        image: bytes = self._driver_connection().serialize()
        known = self.installation()
        return image, 0 if known is None else known.spawned

    def restore(self, image: bytes) -> None:
        self._driver_connection().deserialize(image)

    def beside(self, world: World, *, copied: bool, installation_id: str) -> "WorldDatabase":
        """A second database of the same world: a copy of this one as it is now, or an empty one.

        It stands elsewhere than this one. `installation_id` is its identity, unless it has copied one.
        """
        if self._second is None:
            self._second = WorldDatabase(self._empty)
        second = self._second
        second.enter(world, self._driver_connection().serialize() if copied else None)

        def move(tx: Tx) -> None:
            if installation_sql.find(tx) is None:
                installation_sql.make(tx, installation_id, installation_sql.place_of(tx))
            else:
                tx.execute(update(installation_table).values(place={"memory": "another process"}))

        with second.aside():
            second.transact(move)
        return second

    def installation(self) -> Installation | None:
        with self.aside():
            return self.read(installation_sql.find)

    @contextmanager
    def aside(self) -> Generator["WorldDatabase"]:
        """What is asked in the block is asked from outside: no time passes, and nothing goes wrong."""
        world, self._clock_at_hand.world = self.world, None
        try:
            yield self
        finally:
            self._clock_at_hand.world = world

    def transact(self, work: Callable[[Tx], T]) -> T:
        world = self.world
        if world is None:
            return super().transact(work)
        # The command that it is a part of.
        name = str(getattr(work, "__qualname__", type(work).__qualname__))
        for inner in (".<locals>", ".<lambda>", ".<genexpr>"):
            name = name.replace(inner, "")
        world.reach()
        if world.strikes(Fault.CUT_BEFORE):
            raise StoreUnavailable("the connection broke before the commit")
        if world.strikes(Fault.ROLLED_BACK):
            broke = StoreUnavailable("the connection broke in the middle of the transaction")
            super().transact(_failing_once(work, broke))
        if world.strikes(Fault.CONTENDED):
            work = _failing_once(work, Contended("another transaction was in the way"))
        done = super().transact(work)
        world.tell(world.scheduler.current.process.name, name)
        world.travel()
        if world.strikes(Fault.CUT_AFTER):
            raise OutcomeUnknown("the connection broke during the commit")
        return done

    def read(self, work: Callable[[Tx], T]) -> T:
        world = self.world
        if world is None:
            return super().read(work)
        world.reach()
        return super().read(work)

    @contextmanager
    def _connected(self, engine: Engine, deadline: timedelta | None = None) -> Generator[Connection]:
        """The same for all: a transaction is one step, so no two are open at once, and opening takes a fifth of it."""
        _ = deadline
        if self._open is None:
            self._open = engine.connect()
        yield self._open
        assert not self._open.in_transaction()

    def _driver_connection(self) -> Any:
        with self._connected(self.engine) as connection:
            return connection.connection.dbapi_connection


def _failing_once(work: Callable[[Tx], T], error: HerdsmanError) -> Callable[[Tx], T]:
    """All of it is done, and then undone."""
    errors = iter((error,))

    def run(tx: Tx) -> T:
        done = work(tx)
        for each in errors:
            raise each
        return done

    return run
