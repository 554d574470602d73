"""Where SQLite, PostgreSQL and MariaDB differ: column types that mean the same on all three, and words for views."""

import json
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Phrases:
    """SQL text of one database. `now` is its own clock, in the form that our instants have there."""

    now: str
    ago: str
    between: str
    number: str
    create: str
    installed: str

    def since(self, seconds: int) -> str:
        """The instant that lies so many seconds back."""
        return self.ago.format(seconds=seconds)

    def seconds(self, start: str, end: str) -> str:
        """The time from `start` to `end`, as a number with a fraction."""
        return self.between.format(start=start, end=end)

    def member(self, column: str, key: str) -> str:
        """The number under `key` in a JSON object; NULL when there is something else, or nothing."""
        return self.number.format(column=column, key=key)


PHRASES = {
    "sqlite": Phrases(
        now="strftime('%Y-%m-%d %H:%M:%f', 'now')",
        ago="strftime('%Y-%m-%d %H:%M:%f', 'now', '-{seconds} seconds')",
        between="((julianday({end}) - julianday({start})) * 86400.0)",
        number="CASE WHEN json_type({column}, '$.{key}') IN ('integer', 'real')"
        " THEN json_extract({column}, '$.{key}') * 1.0 END",
        create="CREATE VIEW",
        installed="SELECT name FROM sqlite_master WHERE type = 'view'",
    ),
    "mysql": Phrases(
        now="UTC_TIMESTAMP(6)",
        ago="(UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND)",
        between="(TIMESTAMPDIFF(MICROSECOND, {start}, {end}) / 1e6)",
        number="CASE WHEN JSON_TYPE(JSON_EXTRACT({column}, '$.{key}')) IN ('INTEGER', 'DOUBLE')"
        " THEN JSON_VALUE({column}, '$.{key}') + 0e0 END",
        # With the rights of whoever asks: the user that made it may be gone by then.
        create="CREATE OR REPLACE SQL SECURITY INVOKER VIEW",
        installed="SELECT table_name FROM information_schema.views WHERE table_schema = DATABASE()",
    ),
    "postgresql": Phrases(
        now="now()",
        ago="(now() - INTERVAL '{seconds} seconds')",
        between="CAST(EXTRACT(EPOCH FROM ({end} - {start})) AS double precision)",
        number="CASE WHEN jsonb_typeof({column} -> '{key}') = 'number'"
        " THEN CAST({column} ->> '{key}' AS double precision) END",
        create="CREATE VIEW",
        installed="SELECT viewname FROM pg_views WHERE schemaname = current_schema()",
    ),
}
