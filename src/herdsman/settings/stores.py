"""Where state lives and how workers learn of jobs: the database, Redis, Supabase."""

from typing import Annotated

from pydantic import Field, SecretStr

from herdsman.settings.group import Group
from herdsman.settings.kinds import DefaultText, Milliseconds, Positive, Seconds, Switch
from herdsman.settings.texts import DatabaseUrl, RedisUrl, Secret, Text, WebUrl
from herdsman.settings.urls import default_database_url


def _local_file() -> SecretStr:
    return SecretStr(default_database_url())


class DatabaseSettings(Group):
    """The database that holds the truth."""

    database_url: Annotated[
        DatabaseUrl, DefaultText("sqlite:///USER_DATA_DIRECTORY/herdsman/herdsman.db")
    ] = Field(
        default_factory=_local_file,
        description="Database: SQLite, PostgreSQL or MariaDB.",
    )
    sql_pool_size: Positive = Field(default=10, description="Most connections to the database per process.")
    sql_timeout_sec: Seconds = Field(default=10, description="Seconds that a statement may take.")
    sql_poll_sec: Seconds = Field(
        default=1, description="Seconds between two looks for new jobs in the database."
    )


class StreamSettings(Group):
    """Redis Streams, which only hint at jobs that the database holds."""

    redis_url: RedisUrl = Field(default=None, description="Redis server; without it the database is polled.")
    orch_stream_prefix: Text = Field(
        default="stream:orchestrator", description="What the name of a stream begins with."
    )
    orch_claim_idle_ms: Milliseconds = Field(
        default=60_000, description="Milliseconds after which an unacknowledged entry may be taken over."
    )
    orch_reclaim_interval_s: Seconds = Field(
        default=30, description="Seconds between two looks for entries to take over."
    )
    stream_resync_sec: Seconds = Field(
        default=10, description="Seconds between two comparisons of the streams with the database."
    )
    orch_ingest: Switch = Field(
        default=False, description="Whether jobs that are added to the ingest stream by hand are accepted."
    )
    orch_ingest_agent: Text = Field(
        default="ingest", description="Agent for whom jobs of the ingest stream run, whatever they say."
    )


class SupabaseSettings(Group):
    """A Supabase project whose tables are used."""

    supabase_url: WebUrl = Field(default=None, description="URL of the Supabase project.")
    supabase_service_role_key: Secret = Field(
        default=None, description="Service role key of the Supabase project."
    )
