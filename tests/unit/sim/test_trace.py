"""Any file is either read or refused with a sentence."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.core.errors import InvalidRequest
from herdsman.sim.whatif.trace import read_trace

HEAD = "arrival_s,service_s,class\n"


def written(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_trace_is_read_plain_or_with_gzip(tmp_path: Path) -> None:
    text = f"{HEAD}0,10,a\n1.5,20,b\n"
    plain, zipped = written(tmp_path, text), written(tmp_path, gzip.compress(text.encode()), "t.csv.gz")
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
        (f"{HEAD}0,1,a\n-5,1,a\n", "arrival_s of -5"),
        (f"{HEAD}0,1,a\n1,soon,a\n", "line 3 .* must have a number"),
        (f"{HEAD}0\n", "line 2 .* must have a number"),
        (f"{HEAD}nan,1,a\n", "cannot be"),
        (f"{HEAD}0,inf,a\n", "cannot be"),
        (f"{HEAD}0,nan,a\n", "cannot be"),
        (f"{HEAD}0,1,a\n1e15,1,a\n", "really in seconds"),
        (b"\xff\xfe\x00arrival", "no text in UTF-8"),
        (b"\x1f\x8bnothing", "cannot be read"),
        (gzip.compress(HEAD.encode() + b"1,2,a\n" * 99, mtime=0)[:-10], "cannot be read"),
        (HEAD + '0,"' + "x" * 200_000, "no CSV"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read_trace(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"nowhere\.csv cannot be read"):
        read_trace(tmp_path / "nowhere.csv")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (HEAD + text).encode()))
def test_no_bytes_at_all_are_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = written(tmp_path_factory.getbasetemp(), data, "any.csv")
    try:
        assert len(read_trace(path)) > 0
    except InvalidRequest as error:
        assert "trace" in str(error)
