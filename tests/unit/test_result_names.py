"""Names that services choose for files: whatever they are, a harmless one comes out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest, TooLarge
from herdsman.results.files import (
    ANY_BYTES,
    CONTENT_TYPES,
    LONGEST,
    LONGEST_BYTES,
    MOST_OF_ONE_NAME,
    candidates,
    check_job,
    content_type,
    harmless,
    may_be_kept,
)


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("ComfyUI_00001_.png", "ComfyUI_00001_.png"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\windows\\win.ini", "win.ini"),
        ("/etc/cron.d/job", "job"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("a/", "file"),
        (".bashrc", "bashrc"),
        (". .ssh", "ssh"),
        ("a\nb\x00c\x1b[31m.png", "abc[31m.png"),
        ("\u202egnp.exe", "gnp.exe"),
        ("half\ud800.png", "half.png"),
        ("two words.png", "two words.png"),
        ("Übung 猫.webp", "Übung 猫.webp"),
    ],
)
def test_only_the_last_part_of_a_name_counts_and_only_what_is_harmless(given_name: str, kept: str) -> None:
    assert harmless(given_name) == kept


@given(st.text(max_size=600))
def test_every_name_becomes_one_that_can_be_kept_and_found_again(name: str) -> None:
    kept = harmless(name)
    assert may_be_kept("j1", kept)
    assert harmless(kept) == kept
    assert "/" not in kept
    assert not kept.startswith(".")
    assert len(kept) <= LONGEST
    assert len(kept.encode()) <= LONGEST_BYTES


@given(st.text(st.characters(codec="utf-8"), min_size=300, max_size=600))
def test_a_long_name_keeps_its_ending_and_has_room_for_a_number(name: str) -> None:
    kept = harmless(f"x{name.replace('/', '').replace(chr(92), '')}.png")
    assert kept.endswith(".png")
    last = f"{kept.removesuffix('.png')}-{MOST_OF_ONE_NAME}.png"
    assert may_be_kept("j1", last)


def test_the_names_that_one_name_may_become_have_an_end() -> None:
    some = candidates("a.png")
    found = [next(some) for _ in range(MOST_OF_ONE_NAME)]
    assert found[-1] == f"a-{MOST_OF_ONE_NAME}.png"
    with pytest.raises(TooLarge, match="10,000 different files"):
        next(some)


def test_a_name_that_is_taken_gets_a_number_before_its_ending() -> None:
    some = candidates("a.b.png")
    assert [next(some) for _ in range(3)] == ["a.b.png", "a.b-2.png", "a.b-3.png"]
    bare = candidates("notes")
    assert [next(bare) for _ in range(2)] == ["notes", "notes-2"]


@pytest.mark.parametrize("job_id", ["", ".", "..", "../j", "a/b", ".parts", "a\\b", "a b", "a\0", "x" * 129])
def test_an_id_of_a_job_that_is_a_path_is_refused(job_id: str) -> None:
    with pytest.raises(InvalidRequest, match="job_id"):
        check_job(job_id)
    assert not may_be_kept(job_id, "a.png")


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", ".a", "a\n", "x" * 151, "猫" * 100])
def test_no_other_name_can_be_there(name: str) -> None:
    assert not may_be_kept("j1", name)


def test_only_known_kinds_are_named_and_nothing_that_holds_scripts_is_known() -> None:
    assert content_type("a.PNG") == "image/png"
    assert content_type("a.mp4") == "video/mp4"
    for name in ("a.html", "a.svg", "a.xml", "a.js", "a.pdf", "png", "a.png.exe"):
        assert content_type(name) == ANY_BYTES
    assert not {kind for kind in CONTENT_TYPES.values() if "html" in kind or "svg" in kind or "xml" in kind}
