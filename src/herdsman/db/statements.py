"""Statements of the busy paths: written in Core, compiled once per database, run by the bare driver.

Building and compiling a statement costs many times what the driver needs to run it. Callers still read
like Core; what they pass is bound and converted by the column types, exactly as Core would do it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Dialect,
    SelectBase,
    Update,
    UpdateBase,
    bindparam,
    literal,
)
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeDecorator

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
        return (
            self._statement([bindparam(name) for name in listed])
            if callable(self._statement)
            else self._statement
        )


_PARAMETER = re.compile(r"%s::(TIMESTAMP WITH TIME ZONE|[A-Z]+)")

Writers = Sequence[tuple[str, Callable[[Any], Any]]]


class BulkUpdate:
    """One UPDATE of many rows in one statement, where the database can take the rows as arrays: PostgreSQL.

    The statement is the one for a single row, with each of its parameters turned into a column of the rows that are
    sent. Sending it once for each row costs as much again as the updates do.
    """

    def __init__(self, sql: str, names: Sequence[str], fixed: Mapping[str, Any], writers: Writers) -> None:
        types = _PARAMETER.findall(sql)
        assert len(types) == len(names) == sql.count("%s"), "a parameter has no type, or an unknown one"
        self._given = [name for name in dict.fromkeys(names) if name not in fixed]
        type_of = dict(zip(names, types, strict=True))
        following = iter(names)

        def column(parameter: re.Match[str]) -> str:
            name = next(following)
            return parameter[0] if name in fixed else f"sent.{name}"

        before, _, after = _PARAMETER.sub(column, sql).partition(" WHERE ")
        arrays = ", ".join(f"%s::{type_of[name]}[]" for name in self._given)
        self.sql = f"{before} FROM unnest({arrays}) AS sent({', '.join(self._given)}) WHERE {after}"
        split = sql.partition(" WHERE ")[0].count("%s")
        self._before = [fixed[name] for name in names[:split] if name in fixed]
        self._after = [fixed[name] for name in names[split:] if name in fixed]
        self._writers = dict(writers)

    def bind(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        columns: list[list[Any]] = []
        for name in self._given:
            convert = self._writers.get(name)
            columns.append([row[name] if convert is None else convert(row[name]) for row in rows])
        return [*self._before, *columns, *self._after]


class Compiled:
    """A statement as one database's driver takes it; `room` is how many entries its list has."""

    def __init__(self, hot: PreparedStatement, dialect: Dialect, room: int) -> None:
        self._listed = [f"listed_{index}" for index in range(room)]
        statement = hot.build(self._listed)
        compiled = statement.compile(dialect=dialect, column_keys=hot.columns)
        assert isinstance(compiled, SQLCompiler)
        self.sql = compiled.string
        names = compiled.positiontup
        assert names is not None, f"{dialect.name} must be opened with a positional parameter style"
        self._names = names
        self._fixed = {name: bind.value for name, bind in compiled.binds.items() if bind.value is not None}
        self._writers = _writers(compiled, dialect)
        self._readers = _readers(statement, dialect)
        self._bulk = dialect.name == "postgresql" and isinstance(statement, Update)

    def bind(self, values: Mapping[str, Any], listed: Sequence[str] = ()) -> list[Any]:
        """A list is filled up with its last entry."""
        given = {**self._fixed, **values}
        for index, name in enumerate(self._listed):
            given[name] = listed[min(index, len(listed) - 1)]
        for name, convert in self._writers:
            given[name] = convert(given[name])
        return [given[name] for name in self._names]

    @cached_property
    def bulk(self) -> BulkUpdate | None:
        """The same for many rows at once; None where each is a statement of its own."""
        return BulkUpdate(self.sql, self._names, self._fixed, self._writers) if self._bulk else None

    def read(self, rows: Iterable[Sequence[Any]]) -> list[Row]:
        if not self._readers:
            return [tuple(row) for row in rows]
        found: list[Row] = []
        for row in rows:
            values = list(row)
            for index, convert in self._readers:
                values[index] = convert(values[index])
            found.append(tuple(values))
        return found


def one_of(column: ColumnElement[str], states: Iterable[StrEnum]) -> ColumnElement[bool]:
    """`IN` with a fixed list; a plain `in_` would leave the list to be rendered at each execution."""
    return column.in_([literal(state.value) for state in states])


def _writers(compiled: SQLCompiler, dialect: Dialect) -> Writers:
    """Only our own types convert anything; the drivers take and give the plain ones as they are."""
    ours = [
        (name, bind.type) for name, bind in compiled.binds.items() if isinstance(bind.type, TypeDecorator)
    ]
    found = [(name, kind.dialect_impl(dialect).bind_processor(dialect)) for name, kind in ours]
    return [(name, convert) for name, convert in found if convert is not None]


def _readers(statement: Statement, dialect: Dialect) -> list[tuple[int, Callable[[Any], Any]]]:
    if not isinstance(statement, SelectBase):
        return []
    kinds = [(index, column.type) for index, column in enumerate(statement.selected_columns)]
    ours = [(index, kind.dialect_impl(dialect)) for index, kind in kinds if isinstance(kind, TypeDecorator)]
    found = [(index, kind.result_processor(dialect, None)) for index, kind in ours]
    return [(index, convert) for index, convert in found if convert is not None]
