"""Any file is either read or refused with a sentence."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest
from herdsman.whatif import trace as trace_module
from herdsman.whatif.trace import Classes, by_size, read_trace

HEAD = "arrival_s,service_s,class\n"


def written(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_trace_is_read_plain_or_with_gzip(tmp_path: Path) -> None:
    text = f"{HEAD}0,10,a\n1.5,20,b\n"
    plain, zipped = (
        written(tmp_path, text),
        written(tmp_path, gzip.compress(text.encode(), mtime=0), "t.csv.gz"),
    )
    for path in (plain, zipped):
        trace = read_trace(path)
        assert (list(trace.arrival_s), list(trace.service_s), trace.said) == ([0, 1.5], [10, 20], ())


def test_columns_may_come_in_any_order_and_the_class_may_be_missing(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "extra,service_s,arrival_s\nx,5,0\nx,6,2\n\n"))
    assert (list(trace.arrival_s), list(trace.service_s)) == ([0, 2], [5, 6])


def test_rows_out_of_order_are_sorted_with_a_word(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, f"{HEAD}9,1,a\n3,2,a\n5,3,a\n"))
    assert (list(trace.arrival_s), list(trace.service_s)) == ([0, 2, 6], [2, 3, 1])
    assert "sorted" in trace.said[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column arrival_s"),
        (HEAD, "has no jobs"),
        ("time,took\n1,2\n", "no column arrival_s and no column service_s"),
        (f"{HEAD}0,-1,a\n", "line 2 .* cannot take less than 0"),
        (f"{HEAD}0,1,a\n-5,1,a\n", "line 3 .* arrival_s of -5: times begin at 0"),
        (f"{HEAD}0,1,a\n1,soon,a\n", "line 3 .* must have a number"),
        (f"{HEAD}0\n", "line 2 .* must have a number"),
        (f"{HEAD}nan,1,a\n", "line 2 .* cannot be"),
        (f"{HEAD}inf,1,a\n", "line 2 .* cannot be"),
        (f"{HEAD}1e999,1,a\n", "line 2 .* cannot be"),
        (f"{HEAD}0,1e12,a\n", "line 2 .* cannot be"),
        (f"{HEAD}0,1\n", "line 2 .* and a class, but is: 0,1"),
        (f'{HEAD}0,1,"a\nb"\n1,x,c\n', "line 4 .* must have a number"),
        (f"{HEAD}0,\x1b[31m1,a\n", r"but is: '0,\\x1b\[31m1,a'"),
        (f"{HEAD}0,1\x00,a\n", "line 2 .* must have a number"),
        (HEAD.encode() + b"0,\xff1,a\n", "line 2 .* must have a number"),
        ("arrival_s;service_s;class\n0;1;a\n", "no column arrival_s .* is: arrival_s;service_s;class"),
        (f"{HEAD}0,1,a\n".encode("utf-16"), "in UTF-16: save it as UTF-8"),
        (f"{HEAD}0,1,a\n".encode("utf-16-be"), "no column arrival_s"),
        (b"\x89PNG\r\n\x1a\n\x00", "no column arrival_s"),
        (gzip.compress(b"", mtime=0), "no column arrival_s"),
        (gzip.compress(gzip.compress(HEAD.encode(), mtime=0), mtime=0), "no column arrival_s"),
        (HEAD.encode() + b"1" * (2 << 20), "line 2 .* is longer than 1,048,576 characters"),
        (b"\x00" * (2 << 20), "line 1 .* is longer than"),
        (f"{HEAD}0,inf,a\n", "cannot be"),
        (f"{HEAD}0,nan,a\n", "cannot be"),
        (f"{HEAD}0,1,a\n1e15,1,a\n", "really in seconds"),
        (b"\xff\xfe\x00arrival", "no text in UTF-8 but in UTF-16"),
        (b"\x1f\x8bnothing", "cannot be read"),
        (gzip.compress(HEAD.encode() + b"1,2,a\n" * 99, mtime=0)[:-10], "cannot be read"),
        (HEAD + '0,"' + "x" * 200_000, "line 2 .* is no CSV"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read_trace(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.csv cannot be read"):
        read_trace(tmp_path / "nowhere.csv")


def test_what_a_spreadsheet_writes_is_read(tmp_path: Path) -> None:
    """A mark of the byte order, ends of lines from elsewhere, quotes, capitals, spaces and columns of its own."""
    text = '\ufeff"Arrival_S", service_s ,note,CLASS\r\n"0","1.5","a, b",x\r\n\r\n2,"3","",y\r\n'
    trace = read_trace(written(tmp_path, text))
    assert (list(trace.arrival_s), list(trace.service_s)) == ([0, 2], [1.5, 3])
    assert trace.classes is not None
    assert (trace.classes.names, list(trace.classes.of)) == (["x", "y"], [0, 1])


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be read: .*Is a directory"):
        read_trace(tmp_path)
    with pytest.raises(InvalidRequest, match=r"cannot be read: .*Not a directory"):
        read_trace(written(tmp_path, "") / "below.csv")


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_read_once_and_whole(tmp_path: Path, *, packed: bool) -> None:
    pipe, text = tmp_path / "pipe", f"{HEAD}0,1,a\n5,2,b\n".encode()
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        threads.submit(pipe.write_bytes, gzip.compress(text, mtime=0) if packed else text)
        assert list(read_trace(pipe).arrival_s) == [0, 5]


def test_more_rows_than_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MOST_ROWS", 3)
    assert len(read_trace(written(tmp_path, HEAD + "0,1,a\n" * 3))) == 3
    with pytest.raises(InvalidRequest, match="more than 3 rows: replay a part of it"):
        read_trace(written(tmp_path, HEAD + "0,1,a\n" * 4))


def test_rows_that_are_sorted_take_their_classes_along(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path, f"{HEAD}9,1,late\n3,2,early\n5,3,late\n")).classes
    assert found is not None
    assert [found.names[place] for place in found.of] == ["early", "late", "late"]


def test_of_very_many_classes_the_later_ones_are_one() -> None:
    classes = Classes()
    for number in range(5000):
        classes.add(f"user-{number}")
    classes.add("user-0")
    assert (len(classes.names), classes.names[-1], len(classes.of)) == (1001, "(others)", 5001)
    assert (classes.of[-1], classes.of[4999]) == (0, 1000)


@given(st.lists(st.floats(allow_nan=False), max_size=50), st.integers(1, 7))
def test_numbers_are_put_in_order_by_pieces(numbers: list[float], piece: int) -> None:
    assert list(by_size(numbers, piece)) == sorted(range(len(numbers)), key=numbers.__getitem__)


ROWS = st.lists(
    st.tuples(*(st.text(max_size=5) | st.floats().map(str) | st.integers().map(str) for _ in range(3))).map(",".join),
    max_size=5,
).map(lambda rows: (HEAD + "\n".join(rows)).encode())


@given(
    st.binary(max_size=200)
    | ROWS
    | ROWS.map(gzip.compress)
    | st.text(max_size=200).map(lambda text: (HEAD + text).encode())
)
def test_no_bytes_at_all_are_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = written(tmp_path_factory.getbasetemp(), data, "any.csv")
    try:
        assert len(read_trace(path)) > 0
    except InvalidRequest as error:
        assert "trace" in str(error)
