"""A power cut in the middle of a transaction, at the statement that the test chooses."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from herdsman.db.connection import Database, Tx


class PowerCutError(Exception):
    pass


class Fuse:
    """Armed, it lets some statements pass and then cuts; at the latest before the COMMIT."""

    def __init__(self) -> None:
        self._left: int | None = None

    @contextmanager
    def blown_after(self, statements: int) -> Generator[None]:
        """The block must run a transaction, and that transaction must not be stored."""
        self._left = statements
        try:
            with pytest.raises(PowerCutError):
                yield
        finally:
            self._left = None

    def burn(self) -> None:
        if self._left is not None:
            if self._left == 0:
                raise PowerCutError
            self._left -= 1

    def before_commit(self) -> None:
        if self._left is not None:
            raise PowerCutError


@pytest.fixture
def fuse(monkeypatch: pytest.MonkeyPatch) -> Fuse:
    installed = Fuse()
    for name in ("execute", "run", "run_many", "rows"):
        monkeypatch.setattr(Tx, name, _burning(installed, getattr(Tx, name)))
    plain = Database.transact

    def transact(self: Database, work: Callable[[Tx], Any]) -> Any:
        def cut_at_the_end(tx: Tx) -> Any:
            result = work(tx)
            installed.before_commit()
            return result

        return plain(self, cut_at_the_end)

    monkeypatch.setattr(Database, "transact", transact)
    return installed


def _burning(fuse: Fuse, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def burn(*arguments: Any, **named: Any) -> Any:
        fuse.burn()
        return method(*arguments, **named)

    return burn
