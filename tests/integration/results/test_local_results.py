"""Files in a directory: on the disk before anyone is told, seen by nobody else, and never half."""

import errno
import os
import stat
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from herdsman.errors import Forbidden, NotFound, ServiceUnavailable
from herdsman.ports import ResultFiles
from herdsman.results import ResultOptions, open_store

MB = 1024 * 1024


def files_in(place: Path) -> list[str]:
    return sorted(str(each.relative_to(place)) for each in place.rglob("*") if each.is_file())


def test_only_the_owner_can_look(directory: ResultFiles, place: Path) -> None:
    usual = os.umask(0)
    try:
        directory.put("j1", "a.png", [b"x"])
    finally:
        os.umask(usual)
    modes = {each: stat.S_IMODE(each.stat().st_mode) for each in (place, place / "j1", place / "j1" / "a.png")}
    assert list(modes.values()) == [0o700, 0o700, 0o600]


def test_nothing_is_made_before_the_first_file(directory: ResultFiles, place: Path) -> None:
    assert directory.find("j1", "a.png") is None
    directory.drop("j1")
    assert not place.exists()


@pytest.mark.parametrize("step", ["write", "fsync", "link"])
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_is_full_or_broken_is_told_and_nothing_is_left(
    directory: ResultFiles, place: Path, monkeypatch: pytest.MonkeyPatch, step: str, fault: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ServiceUnavailable, match=r"'a\.png' of job 'j1' could not be kept.*RESULT_STORE") as told:
        directory.put("j1", "a.png", [b"x"])
    assert os.strerror(fault) in str(told.value)
    assert str(place) in str(told.value)
    assert files_in(place) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store(ResultOptions(place=str(tmp_path / "file" / "results")))
    with pytest.raises(ServiceUnavailable, match="Not a directory"):
        store.put("j1", "a.png", [b"x"])


def test_a_file_system_without_links_works_too(
    directory: ResultFiles, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    directory.put("j1", "a.png", [b"x"])
    directory.put("j1", "a.png", [b"y"])
    assert files_in(place) == ["j1/a-2.png", "j1/a.png"]


def test_a_link_that_leads_out_is_not_followed(directory: ResultFiles, place: Path, tmp_path: Path) -> None:
    directory.put("j1", "a.png", [b"x"])
    (tmp_path / "secret").write_text("secret")
    (place / "j1" / "b.png").symlink_to(tmp_path / "secret")
    (place / "j2").symlink_to(tmp_path)
    for uri in (f"{(place / 'j1').as_uri()}/b.png", f"{place.as_uri()}/j2/secret"):
        with pytest.raises(Forbidden, match="only files in the result store"):
            b"".join(directory.read(uri))
    assert directory.find("j1", "b.png") is None


def test_a_directory_or_a_strange_path_is_no_file(directory: ResultFiles, place: Path) -> None:
    directory.put("j1", "a.png", [b"x"])
    for uri in (f"{place.as_uri()}/j1", f"{place.as_uri()}/j1/a%00.png"):
        with pytest.raises(NotFound):
            b"".join(directory.read(uri))


def test_a_link_in_the_place_of_a_file_is_never_written_through(
    directory: ResultFiles, place: Path, tmp_path: Path
) -> None:
    (place / "j1").mkdir(parents=True)
    (place / "j1" / "a.png").symlink_to(tmp_path / "target")
    assert directory.put("j1", "a.png", [b"x"]).name == "a-2.png"
    assert not (tmp_path / "target").exists()


def test_writers_of_one_name_at_once_lose_nothing(place: Path) -> None:
    def put(number: int) -> tuple[str, bytes]:
        content = bytes([number % 4]) * 1000
        store = open_store(ResultOptions(place=str(place)))
        return store.put("j1", "a.png", [content]).uri, content

    with ThreadPoolExecutor(8) as many:
        kept = list(many.map(put, range(40)))
    store = open_store(ResultOptions(place=str(place)))
    assert len({uri for uri, _ in kept}) == 4
    assert all(b"".join(store.read(uri)) == content for uri, content in kept)


def test_a_name_that_is_taken_at_the_last_moment_is_left_to_its_owner(
    directory: ResultFiles, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def late(part: Path, path: Path) -> None:
        if not (place / "j1" / "a.png").exists():
            (place / "j1" / "a.png").write_bytes(b"the other was quicker")
        link(part, path)

    monkeypatch.setattr(os, "link", late)
    assert directory.put("j1", "a.png", [b"ours"]).name == "a-2.png"
    assert (place / "j1" / "a.png").read_bytes() == b"the other was quicker"
    assert (place / "j1" / "a-2.png").read_bytes() == b"ours"


KILLED = """
import os, signal, sys
from herdsman.results import ResultOptions, open_store
def content():
    yield b"x" * 100_000
    os.kill(os.getpid(), signal.SIGKILL)
open_store(ResultOptions(place=sys.argv[1])).put("j1", "a.png", content())
"""


def test_a_writer_that_is_killed_leaves_no_half_file_and_its_rest_is_removed_later(place: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(place)], timeout=60)
    assert ended.returncode == -9
    left = files_in(place)
    assert len(left) == 1
    assert left[0].startswith(".parts/")
    store = open_store(ResultOptions(place=str(place)))
    assert store.find("j1", "a.png") is None
    store.put("j2", "b.png", [b"x"])
    assert left[0] in files_in(place), "another process may still be writing it"
    os.utime(place / left[0], (1, 1))
    store.put("j2", "c.png", [b"x"])
    assert files_in(place) == ["j2/b.png", "j2/c.png"]


def test_a_large_file_does_not_fill_the_memory(directory: ResultFiles) -> None:
    tracemalloc.start()
    try:
        kept = directory.put("j1", "a.bin", (bytes(64 * 1024) for _ in range(160)))
        for _ in directory.read(kept.uri):
            pass
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.bytes == 10 * MB
    assert most < 5 * MB
