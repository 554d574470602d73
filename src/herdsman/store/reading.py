"""Rows of queries that are run too seldom to be worth compiling once."""

from typing import Any

from sqlalchemy import Executable

from herdsman.store.database import Tx

Record = dict[str, Any]


def records(tx: Tx, query: Executable) -> list[Record]:
    return [{str(name): value for name, value in row.items()} for row in tx.execute(query).mappings()]


def record(tx: Tx, query: Executable) -> Record | None:
    """The only row, or None; a query that finds two is a bug."""
    found = records(tx, query)
    assert len(found) <= 1, f"{len(found)} rows where one was meant"
    return found[0] if found else None


def values(tx: Tx, query: Executable) -> list[Any]:
    """The first column."""
    return [row[0] for row in tx.execute(query)]
