"""What a job made is saved whole, under a harmless name, and never over another file."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from herdsman.cli.run import Fetch, OutputFile, check_directory, harmless, outputs_of, save
from herdsman.errors import InvalidRequest, Unreachable


def an_output(name: str, content: bytes = b"a picture") -> OutputFile:
    return OutputFile(name, f"s3://bucket/{name}", sha256(content).hexdigest())


def brings(contents: Mapping[str, bytes] | bytes = b"a picture") -> Fetch:
    def fetch(output: OutputFile, to: Path) -> None:
        to.write_bytes(contents if isinstance(contents, bytes) else contents[output.name])

    return fetch


def test_files_are_saved_in_their_order(tmp_path: Path) -> None:
    outputs = [an_output("b.png", b"b"), an_output("a.png", b"a")]
    saved = save(outputs, "job-1", tmp_path / "new" / "place", brings({"b.png": b"b", "a.png": b"a"}))
    assert saved == [tmp_path / "new/place/b.png", tmp_path / "new/place/a.png"]
    assert [path.read_bytes() for path in saved] == [b"b", b"a"]
    assert sorted(path.name for path in saved[0].parent.iterdir()) == ["a.png", "b.png"]


def test_another_file_of_that_name_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"somebody's own")
    (saved,) = save([an_output("a.png")], "0123456789abcdef", tmp_path, brings())
    assert saved == tmp_path / "89abcdef-a.png"
    assert (tmp_path / "a.png").read_bytes() == b"somebody's own"


def test_three_files_of_one_name_are_three_files(tmp_path: Path) -> None:
    contents = [b"one", b"two", b"three"]
    outputs = [an_output("a.png", each) for each in contents]
    left = iter(contents)

    def fetch(_: OutputFile, to: Path) -> None:
        to.write_bytes(next(left))

    saved = save(outputs, "j1", tmp_path, fetch)
    assert [path.name for path in saved] == ["a.png", "j1-a.png", "j1-2-a.png"]
    assert [path.read_bytes() for path in saved] == contents


def test_saved_again_it_is_the_same_file(tmp_path: Path) -> None:
    first = save([an_output("a.png")], "job-1", tmp_path, brings())
    assert save([an_output("a.png")], "job-1", tmp_path, brings()) == first
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"a picture")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.png").symlink_to(elsewhere)
    (saved,) = save([an_output("a.png")], "job-1", tmp_path / "here", brings())
    assert saved.name == "job-1-a.png"


def test_what_arrives_damaged_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"a\.png arrived damaged"):
        save([an_output("a.png")], "job-1", tmp_path, brings(b"another picture"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\evil.exe", "evil.exe"),
        ("..", "output"),
        ("", "output"),
        (".bashrc", "bashrc"),
        ("a\x1b[31m\n.png", "a[31m.png"),
        ("a/", "output"),
    ],
)
def test_a_name_from_a_service_cannot_leave_its_directory(name: str, expected: str, tmp_path: Path) -> None:
    assert harmless(name) == expected
    (saved,) = save([an_output(name)], "job-1", tmp_path, brings())
    assert saved == tmp_path / expected


def test_a_long_name_keeps_its_ending(tmp_path: Path) -> None:
    (saved,) = save([an_output("ü" * 500 + ".png")], "job-1", tmp_path, brings())
    assert saved.name.endswith("ü.png")
    assert len(saved.name.encode()) <= 200


def test_a_directory_that_cannot_be_one_is_told_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(InvalidRequest, match="is not a directory"):
            check_directory(wrong)
    check_directory(tmp_path / "new" / "place")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("result", [None, 3, [], {}, {"outputs": 3}, {"outputs": [3, {"name": "a"}, {"uri": 1}]}])
def test_a_result_without_files_has_none(result: object) -> None:
    assert outputs_of(result) == []
