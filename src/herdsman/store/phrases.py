"""The few things that the three databases say in different words where a view needs them."""

from dataclasses import dataclass


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
