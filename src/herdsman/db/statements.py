"""Statements of the busy paths: written in Core, compiled once per database, run by the bare driver.

Building and compiling a statement costs many times what the driver needs to run it. Callers still read
like Core; what they pass is bound and converted by the column types, exactly as Core would do it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, SelectBase, UpdateBase, bindparam, literal, literal_column, or_

Statement = SelectBase | UpdateBase
Row = tuple[Any, ...]

MOST_LISTED = 1024
"""The longest list that one statement takes."""


class PreparedStatement:
    """One busy statement; with a list in it, one per power of two of the list's length."""

    def __init__(
        self,
        statement: Statement | Callable[[Sequence[BindParameter[Any]]], Statement],
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._statement = statement
        self.columns = columns
        """Of an INSERT: those that are given; without this, all of them."""

    def build(self, listed: Sequence[str]) -> Statement:
        """`listed` names the parameters of its list."""
        return self._statement([bindparam(name) for name in listed]) if callable(self._statement) else self._statement


# Numbers with a fraction come without their type.
_PARAMETER = re.compile(r"%s(?:::(TIMESTAMP WITH TIME ZONE|[A-Z]+))?")

Writers = Sequence[tuple[str, Callable[[Any], Any]]]


class BulkWrite:
    """An UPDATE or INSERT of many rows in one statement, where the database can take the rows as arrays: PostgreSQL.

    The statement is the one for a single row, with each of its parameters turned into a column of the rows that are
    sent. Sending it once for each row costs as much again as the writes do.
    """

    def __init__(self, sql: str, names: Sequence[str], fixed: Mapping[str, Any], writers: Writers) -> None:
        types = [found or "DOUBLE PRECISION" for found in _PARAMETER.findall(sql)]
        assert len(types) == len(names) == sql.count("%s"), "a parameter has no type, or an unknown one"
        self._given = [name for name in dict.fromkeys(names) if name not in fixed]
        type_of = dict(zip(names, types, strict=True))
        following = iter(names)

        def column(parameter: re.Match[str]) -> str:
            name = next(following)
            return parameter[0] if name in fixed else f"sent.{name}"

        inserts = sql.startswith("INSERT")
        before, _, after = _PARAMETER.sub(column, sql).partition(" VALUES (" if inserts else " WHERE ")
        arrays = ", ".join(f"%s::{type_of[name]}[]" for name in self._given)
        sent = f"FROM unnest({arrays}) AS sent({', '.join(self._given)})"
        self.sql = f"{before} SELECT {after[:-1]} {sent}" if inserts else f"{before} {sent} WHERE {after}"
        split = len(names) if inserts else sql.partition(" WHERE ")[0].count("%s")
        self._before = [fixed[name] for name in names[:split] if name in fixed]
        self._after = [fixed[name] for name in names[split:] if name in fixed]
        self._writers = dict(writers)

    def bind(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        columns: list[list[Any]] = []
        for name in self._given:
            convert = self._writers.get(name)
            columns.append([row[name] if convert is None else convert(row[name]) for row in rows])
        return [*self._before, *columns, *self._after]


def one_of(column: ColumnElement[str], states: Iterable[StrEnum]) -> ColumnElement[bool]:
    """`IN` with a fixed list; a plain `in_` would leave the list to be rendered at each execution."""
    return column.in_([literal(state.value) for state in states])


def in_state(column: ColumnElement[str], *states: StrEnum) -> ColumnElement[bool]:
    """In words that every database finds again in the condition of an index: a parameter might be anything."""
    return or_(*(column == literal_column(f"'{state}'") for state in states))
