"""One UPDATE of many rows in one statement, where the database can take the rows as arrays: PostgreSQL.

The statement is the one for a single row, with each of its parameters turned into a column of the rows that are sent.
Sending it once for each row costs as much again as the updates do.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
