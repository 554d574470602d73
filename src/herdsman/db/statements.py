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


class Hot:
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

    def build(self, listed: int) -> Statement:
        if callable(self._statement):
            return self._statement([bindparam(_listed(index)) for index in range(listed)])
        return self._statement


_PLACE = re.compile(r"%s::(TIMESTAMP WITH TIME ZONE|[A-Z]+)")
_ROWS = "sent"


class Bulk:
    def __init__(self, sql: str, names: Sequence[str], fixed: Mapping[str, Any]) -> None:
        kinds = _PLACE.findall(sql)
        assert len(kinds) == len(names) == sql.count("%s"), "a parameter has no type, or an unknown one"
        self._given = [name for name in dict.fromkeys(names) if name not in fixed]
        kind_of = dict(zip(names, kinds, strict=True))
        places = iter(names)
        where = _PLACE.sub(lambda found: _written(next(places), fixed, found[0]), sql)
        arrays = ", ".join(f"%s::{kind_of[name]}[]" for name in self._given)
        source = f" FROM unnest({arrays}) AS {_ROWS}({', '.join(self._given)}) WHERE "
        before, _, after = where.partition(" WHERE ")
        self.sql = f"{before}{source}{after}"
        split = sql.partition(" WHERE ")[0].count("%s")
        self._before = [fixed[name] for name in names[:split] if name in fixed]
        self._after = [fixed[name] for name in names[split:] if name in fixed]

    def bind(
        self, rows: Sequence[Mapping[str, Any]], writers: Sequence[tuple[str, Callable[[Any], Any]]]
    ) -> list[Any]:
        convert = dict(writers)
        columns = [
            [convert[name](row[name]) if name in convert else row[name] for row in rows]
            for name in self._given
        ]
        return [*self._before, *columns, *self._after]


def _written(name: str, fixed: Mapping[str, Any], place: str) -> str:
    return place if name in fixed else f"{_ROWS}.{name}"


class Ready:
    """A statement as one database's driver takes it."""

    def __init__(self, statement: Statement, dialect: Dialect, columns: Sequence[str] | None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        assert isinstance(compiled, SQLCompiler)
        self.sql = compiled.string
        names = compiled.positiontup
        assert names is not None, f"{dialect.name} must be opened with a positional parameter style"
        self._names = names
        self._fixed = {name: bind.value for name, bind in compiled.binds.items() if bind.value is not None}
        self._writers = _writers(compiled, dialect)
        self._whole = dialect.name == "postgresql" and isinstance(statement, Update)
        self._readers = _readers(statement, dialect)

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        given = {**self._fixed, **values}
        for name, convert in self._writers:
            given[name] = convert(given[name])
        return [given[name] for name in self._names]

    @cached_property
    def bulk(self) -> Bulk | None:
        """The same for many rows at once; None where each is a statement of its own."""
        return Bulk(self.sql, self._names, self._fixed) if self._whole else None

    def bind_bulk(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        assert self.bulk is not None
        return self.bulk.bind(rows, self._writers)

    def read(self, row: Sequence[Any]) -> Row:
        if not self._readers:
            return tuple(row)
        values = list(row)
        for index, convert in self._readers:
            values[index] = convert(values[index])
        return tuple(values)


def one_of(column: ColumnElement[str], states: Iterable[StrEnum]) -> ColumnElement[bool]:
    """`IN` with a fixed list; a plain `in_` would leave the list to be rendered at each execution."""
    return column.in_([literal(state.value) for state in states])


def padded(listed: Sequence[str]) -> dict[str, str]:
    """The list as parameters, its last entry repeated up to a power of two, so that few lengths exist."""
    assert 0 < len(listed) <= MOST_LISTED, f"{len(listed)} entries in one list"
    length = room_for(len(listed))
    return {_listed(index): listed[min(index, len(listed) - 1)] for index in range(length)}


def room_for(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _listed(index: int) -> str:
    return f"listed_{index}"


def _writers(compiled: SQLCompiler, dialect: Dialect) -> list[tuple[str, Callable[[Any], Any]]]:
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
