"""Files in a bucket: how they lie there, and what is said when it is away."""

from dataclasses import replace

import httpx
import pytest

from herdsman.errors import InvalidSettings, ServiceUnavailable
from herdsman.ports import ResultFiles
from herdsman.results import ResultOptions, open_store
from tests.integration.results.conftest import s3_options
from tests.integration.results.s3_server import S3Server, s3_server

MB = 1024 * 1024


def test_a_file_lies_under_its_prefix_with_its_kind_and_its_sum(s3: S3Server) -> None:
    options = s3_options(s3)
    kept = open_store(options).put("j1", "a.png", [b"cat"])
    assert kept.uri == f"{options.place}/j1/a.png"
    seen = s3.look(kept.uri)
    assert (seen["Content-Type"], seen["sha256"], seen["size"]) == ("image/png", kept.sha256, 3)


def test_a_bucket_needs_no_prefix(s3: S3Server) -> None:
    store = open_store(replace(s3_options(s3), place="s3://pail/"))
    kept = store.put("j-bare", "a.png", [b"cat"])
    assert kept.uri == "s3://pail/j-bare/a.png"
    assert store.find("j-bare", "a.png") == kept.uri
    store.drop("j-bare")
    assert "j-bare" not in s3.listing()


def test_a_large_file_is_sent_in_parts_and_none_is_left_over(s3: S3Server, bucket: ResultFiles) -> None:
    kept = bucket.put("j-parts", "a.bin", [bytes(MB)] * 10)
    seen = s3.look(kept.uri)
    assert seen["e_tag"].endswith('-2"')
    assert seen["sha256"] == kept.sha256
    assert "<Upload>" not in s3.unfinished()


def test_a_file_that_others_put_there_is_not_replaced(s3: S3Server) -> None:
    options = s3_options(s3)
    httpx.put(f"{s3.url}/{options.place.removeprefix('s3://')}/j1/a.png", content=b"theirs", timeout=30)
    store = open_store(options)
    assert store.put("j1", "a.png", [b"ours"]).name == "a-2.png"
    assert b"".join(store.read(f"{options.place}/j1/a.png")) == b"theirs"


def test_a_wrong_key_is_told_with_the_settings_to_look_at(s3: S3Server, bucket: ResultFiles) -> None:
    uri = bucket.put("j1", "a.png", [b"cat"]).uri
    with s3.refusing_all_keys():
        for call in (
            lambda: bucket.put("j1", "b.png", [b"dog"]),
            lambda: b"".join(bucket.read(uri)),
            lambda: bucket.find("j1", "a.png"),
            lambda: bucket.drop("j1"),
        ):
            with pytest.raises(ServiceUnavailable, match="RESULT_S3_KEY_ID, RESULT_S3_SECRET"):
                call()
    assert bucket.find("j1", "a.png") == uri


def test_a_bucket_that_is_missing_is_told(s3: S3Server) -> None:
    options = s3_options(s3, bucket="no-such-bucket")
    store = open_store(options)
    for call in (
        lambda: store.put("j1", "a.png", [b"cat"]),
        lambda: b"".join(store.read(f"{options.place}/j1/a.png")),
        lambda: store.drop("j1"),
    ):
        with pytest.raises(ServiceUnavailable, match=r"no bucket for s3://no-such-bucket.*RESULT_STORE"):
            call()


def test_a_server_that_is_away_is_told_within_seconds() -> None:
    with s3_server() as server:
        options = s3_options(server)
        store = open_store(options)
        uri = store.put("j1", "a.png", [b"cat"]).uri
    for call in (
        lambda: store.put("j1", "b.png", [b"dog"]),
        lambda: b"".join(store.read(uri)),
        lambda: store.find("j1", "a.png"),
        lambda: store.drop("j1"),
    ):
        with pytest.raises(ServiceUnavailable, match="RESULT_S3_ENDPOINT") as told:
            call()
        assert "something" not in str(told.value)
        assert "\n" not in str(told.value)


@pytest.mark.parametrize("place", ["s3://", "s3:///x", "gs://bucket", "https://bucket.example"])
def test_a_place_that_is_neither_is_refused(place: str) -> None:
    with pytest.raises(InvalidSettings, match="RESULT_STORE"):
        open_store(ResultOptions(place=place))


def test_the_secret_is_never_shown() -> None:
    assert "canary" not in repr(ResultOptions(place="s3://b", s3_key_id="k", s3_secret="canary"))
