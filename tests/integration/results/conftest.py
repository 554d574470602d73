"""Both result stores, empty, with small limits."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from herdsman.ports import ResultFiles
from herdsman.results import ResultOptions, open_store
from tests.integration.results.s3_server import BUCKET, S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def s3_options(server: S3Server, *, bucket: str = BUCKET) -> ResultOptions:
    return ResultOptions(
        place=f"s3://{bucket}/results/{secrets.token_hex(4)}",
        max_file_mb=12,
        max_job_mb=13,
        s3_endpoint=server.url,
        s3_key_id="someone",
        s3_secret="something",
    )


@pytest.fixture
def bucket(s3: S3Server) -> ResultFiles:
    return open_store(s3_options(s3))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def directory(place: Path) -> ResultFiles:
    return open_store(ResultOptions(place=str(place), max_file_mb=12, max_job_mb=13))


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest) -> ResultFiles:
    chosen: ResultFiles = request.getfixturevalue(request.param)
    return chosen
