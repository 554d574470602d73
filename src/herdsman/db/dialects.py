"""Where SQLite, PostgreSQL and MariaDB differ: column types that mean the same on all three, and the time between two instants."""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Double, LargeBinary, String, Text
from sqlalchemy.dialects.mysql import DATETIME, MEDIUMBLOB, MEDIUMTEXT, VARCHAR
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine


class Instant(TypeDecorator[datetime]):
    """An aware UTC instant to the microsecond."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        # MariaDB's TIMESTAMP ends in 2038 and both of its types default to whole seconds.
        return DATETIME(fsp=6) if dialect.name == "mysql" else DateTime(timezone=True)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        assert value.tzinfo is not None, f"{value} has no time zone"
        utc = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.replace(tzinfo=None)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.astimezone(UTC) if dialect.name == "postgresql" else value.replace(tzinfo=UTC)


class JsonText(TypeDecorator[str]):
    """JSON that comes and goes as text: kept byte for byte, parsed only by whoever looks inside."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _json_column(dialect, JSON())

    def bind_processor(self, dialect: Dialect) -> Any:
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return None


class JsonObject(TypeDecorator[dict[str, object]]):
    """A JSON object that we look into: metadata and details."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return _json_column(dialect, JSONB())

    def bind_processor(self, dialect: Dialect) -> Any:
        def to_text(value: object) -> str | None:
            return None if value is None else json.dumps(value)

        return to_text

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        def from_text(value: str | None) -> Any:
            return None if value is None else json.loads(value)

        return from_text


def _json_column(dialect: Dialect, on_postgres: TypeEngine[Any]) -> TypeEngine[Any]:
    # A column that SQLite knows as JSON would turn the text 1 into the number 1.
    others: dict[str, TypeEngine[Any]] = {"sqlite": Text(), "postgresql": on_postgres}
    return others.get(dialect.name, JSON())


def name(length: int) -> TypeEngine[str]:
    """Text compared byte by byte: MariaDB's usual collations take `a`, `A` and `a ` for one another."""
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_nopad_bin")
    return String(length).with_variant(exact, "mysql")


def long_text() -> TypeEngine[str]:
    return Text().with_variant(MEDIUMTEXT(charset="utf8mb4"), "mysql")


def packed() -> TypeEngine[bytes]:
    return LargeBinary().with_variant(MEDIUMBLOB(), "mysql")


def real() -> TypeEngine[float]:
    return Double()


_SECONDS = {
    "sqlite": "((julianday({end}) - julianday({start})) * 86400.0)",
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, {start}, {end}) / 1e6)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM ({end} - {start})) AS double precision)",
}


def seconds_between(dialect: str, start: str, end: str) -> str:
    """SQL: the time from `start` to `end`, as a number with a fraction."""
    return _SECONDS[dialect].format(start=start, end=end)
