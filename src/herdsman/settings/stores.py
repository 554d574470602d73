"""Where state lives and how workers learn of jobs: the database, Redis, and the files of jobs."""

from typing import Annotated

from pydantic import Field, SecretStr

from herdsman.settings.group import Group
from herdsman.settings.kinds import DefaultText, Milliseconds, Positive, Seconds, Switch
from herdsman.settings.texts import DatabaseUrl, OptionalText, RedisUrl, Secret, Text, Texts, WebUrl
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
        default=1, description="Seconds between two looks of the server for new jobs in the database."
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


class ResultSettings(Group):
    """Where the files are kept that jobs make."""

    result_store: Annotated[OptionalText, DefaultText("the directory results inside LOCAL_STATE_DIR")] = (
        Field(
            default=None,
            description="Directory for the files of jobs, or s3://BUCKET/PREFIX if workers are on other machines.",
        )
    )
    result_max_file_mb: Positive = Field(default=1024, description="Largest file of a job, in MB.")
    result_max_job_mb: Positive = Field(default=4096, description="Most that all files of a job have, in MB.")
    result_allow_hosts: Texts = Field(
        default=(),
        description="Hosts, as NAME or NAME:PORT, that jobs may name files on though they are not public.",
    )
    result_s3_endpoint: WebUrl = Field(
        default=None, description="URL of an S3-compatible server; without it, that of AWS."
    )
    result_s3_region: OptionalText = Field(default=None, description="Region of the bucket.")
    result_s3_key_id: OptionalText = Field(
        default=None, description="Id of the key to the bucket; without it, the machine's own role is used."
    )
    result_s3_secret: Secret = Field(default=None, description="Secret of the key to the bucket.")
