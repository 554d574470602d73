"""What every result store promises: whole files or none, harmless names, nothing of others."""

import hashlib
from collections.abc import Iterator

import pytest

from herdsman.errors import Forbidden, InvalidRequest, NotFound, TooLarge
from herdsman.ports import ResultFiles

MB = 1024 * 1024


def whole(store: ResultFiles, uri: str) -> bytes:
    return b"".join(store.read(uri))


def test_what_was_put_is_read_back_with_its_sum(store: ResultFiles) -> None:
    kept = store.put("j1", "a.png", [b"one", b"", b"two"])
    assert (kept.name, kept.bytes, kept.content_type) == ("a.png", 6, "image/png")
    assert kept.sha256 == hashlib.sha256(b"onetwo").hexdigest()
    assert whole(store, kept.uri) == b"onetwo"
    assert store.size(kept.uri) == 6
    assert store.find("j1", "a.png") == kept.uri


def test_an_empty_file_is_a_file(store: ResultFiles) -> None:
    kept = store.put("j1", "empty.txt", [])
    assert (kept.bytes, whole(store, kept.uri)) == (0, b"")
    assert store.find("j1", "empty.txt") == kept.uri


def test_a_part_of_a_file_can_be_asked_for(store: ResultFiles) -> None:
    uri = store.put("j1", "a.mp4", [bytes(range(256))]).uri
    assert b"".join(store.part(uri, 10, 5)) == bytes(range(10, 15))
    assert b"".join(store.part(uri, 250, 6)) == bytes(range(250, 256))
    assert b"".join(store.part(uri, 0, 0)) == b""


def test_a_file_of_many_parts_arrives_whole(store: ResultFiles) -> None:
    pieces = [bytes([number]) * 100_000 for number in range(100)]
    kept = store.put("j1", "large.bin", pieces)
    assert kept.bytes == 10_000_000
    assert hashlib.sha256(whole(store, kept.uri)).hexdigest() == kept.sha256


def test_the_same_file_again_is_the_same_file(store: ResultFiles) -> None:
    """A result that is fetched twice, by two workers perhaps, has one outcome."""
    first, again = (store.put("j1", "a.png", [b"cat"]) for _ in range(2))
    assert first == again


def test_another_content_under_the_same_name_is_kept_beside_it(store: ResultFiles) -> None:
    """Both times in the same order: the names are the same however often it is done."""
    for _ in range(2):
        kept = [store.put("j1", f"{where}/a.png", [where.encode()]) for where in ("x", "y", "z")]
        assert [each.name for each in kept] == ["a.png", "a-2.png", "a-3.png"]
        assert [whole(store, each.uri) for each in kept] == [b"x", b"y", b"z"]


def test_jobs_do_not_share_names(store: ResultFiles) -> None:
    one, other = store.put("j1", "a.png", [b"1"]), store.put("j10", "a.png", [b"10"])
    assert (one.name, other.name) == ("a.png", "a.png")
    store.drop("j1")
    assert store.find("j1", "a.png") is None
    assert whole(store, other.uri) == b"10"


def test_a_file_is_read_by_the_jobs_of_its_own_agent_only(store: ResultFiles) -> None:
    """To the jobs of others it is as if it were not there, however it is written."""
    ann, bob = store.for_agent("ann"), store.for_agent("bob")
    uri = ann.put("j1", "a.png", [b"secret"]).uri
    ann.put("j1", "b.png", [b"more"])
    brought = store.put("inputs-1", "a.png", [b"brought by a person"]).uri
    for reader in (ann, store.for_agent("ann"), store):
        assert b"".join(reader.read(uri)) == b"secret"
    assert b"".join(bob.read(brought)) == b"brought by a person"
    for other in (bob, store.for_agent("")):
        for spelt in (uri, uri.replace("a.png", "b.png"), uri.replace("j1", "%6a1")):
            with pytest.raises(NotFound):
                b"".join(other.read(spelt))
    assert store.find("j1", "a.png") == uri


def test_a_job_without_files_can_be_dropped_too(store: ResultFiles) -> None:
    store.drop("j-none")
    store.drop("j-none")


@pytest.mark.parametrize("name", ["../../../x.png", "/etc/x.png", "..\\x.png", "a/../x.png", ".\x00x.png"])
def test_a_name_that_is_a_path_leads_nowhere(store: ResultFiles, name: str) -> None:
    kept = store.put("j1", name, [b"x"])
    assert kept.name == "x.png"
    assert store.find("j1", "x.png") == kept.uri


@pytest.mark.parametrize("name", ["a b+c&d.png", "100% [1] #2?~.png", "Übung 猫.png", "a:b@c.png", "'\"<>|*.png"])
def test_odd_names_come_back_as_they_were(store: ResultFiles, name: str) -> None:
    kept = store.put("j:1@a+b", name, [b"odd"])
    assert kept.name == name
    assert store.find("j:1@a+b", name) == kept.uri
    assert whole(store, kept.uri) == b"odd"
    assert kept.uri.isascii()


@pytest.mark.parametrize("job_id", ["..", "../j1", "a/b", "", ".parts"])
def test_an_id_that_is_a_path_is_refused(store: ResultFiles, job_id: str) -> None:
    for call in (lambda: store.put(job_id, "a", [b"x"]), lambda: store.drop(job_id)):
        with pytest.raises(InvalidRequest, match="job_id"):
            call()
    assert store.find(job_id, "a") is None


def test_a_file_over_the_limit_is_refused_and_nothing_is_left(store: ResultFiles) -> None:
    taken = 0

    def too_much() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(40):
            taken += MB
            yield bytes(MB)

    with pytest.raises(TooLarge, match=r"'a\.png' of job 'j1'.*13,631,488 bytes.*12 MB.*RESULT_MAX_FILE_MB"):
        store.put("j1", "a.png", too_much())
    assert taken == 13 * MB
    assert store.find("j1", "a.png") is None


def test_a_job_over_its_limit_is_refused_but_what_it_has_may_come_again(store: ResultFiles) -> None:
    first = store.put("j1", "a.bin", [b"a" * (8 * MB)])
    with pytest.raises(TooLarge, match=r"'b\.bin' of job 'j1'.*13 MB together.*RESULT_MAX_JOB_MB"):
        store.put("j1", "b.bin", [b"b" * (6 * MB)])
    assert store.find("j1", "b.bin") is None
    assert store.put("j1", "a.bin", [b"a" * (8 * MB)]) == first
    assert store.put("j2", "b.bin", [b"b" * (6 * MB)]).name == "b.bin"


def test_a_content_that_breaks_off_leaves_nothing(store: ResultFiles) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(9 * MB)
        raise ConnectionResetError("the service went away")

    with pytest.raises(ConnectionResetError, match="the service went away"):
        store.put("j1", "a.png", broken())
    assert store.find("j1", "a.png") is None


def test_a_file_that_is_not_there_is_not_found(store: ResultFiles) -> None:
    uri = store.put("j1", "a.png", [b"x"]).uri
    gone = uri.replace("a.png", "b.png")
    for look in (lambda: whole(store, gone), lambda: store.size(gone)):
        with pytest.raises(NotFound, match=r"b\.png"):
            look()


@pytest.mark.parametrize(
    "uri",
    ["file:///etc/passwd", "file://elsewhere/etc/passwd", "s3://other/results/j1/a.png", "s3://pail/a.png"],
)
def test_files_outside_the_store_are_forbidden(store: ResultFiles, uri: str) -> None:
    with pytest.raises(Forbidden, match="only files in the result store"):
        whole(store, uri)


def test_a_reference_cannot_climb_out_of_the_store(store: ResultFiles) -> None:
    uri = store.put("j1", "a.png", [b"x"]).uri
    for climb in (
        "/../../../../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    ):
        with pytest.raises((Forbidden, NotFound)):
            whole(store, f"{uri.rpartition('/')[0]}{climb}")


@pytest.mark.parametrize("uri", ["data:image/png;base64,AAAA", "DATA:,x"])
def test_files_inside_a_job_are_refused(store: ResultFiles, uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"data: URI.*give a reference"):
        whole(store, uri)


@pytest.mark.parametrize("uri", ["ftp://h/x", "iVBORw0KGgo=", "", "/etc/passwd", "javascript:1"])
def test_any_other_reference_is_refused_with_the_kinds_there_are(store: ResultFiles, uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"file://, s3://, http:// or https://.*base64 is not taken"):
        whole(store, uri)
