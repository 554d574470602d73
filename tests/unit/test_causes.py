"""Many errors, one cause."""

import time

import pytest

from herdsman.jobs.failures import LONGEST, cause_of, key_of, normalised

TRACE = """Traceback (most recent call last):
  File "/srv/jobs.py", line 12, in image
    model.load(path)
ValueError: no weights at /models/8f14e45fceea167a/3.bin
"""


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("job 17 took 3.5 s", "job N took N s"),
        ("HTTP 503 from 10.0.0.1:8188", "HTTP N from N"),
        ("at 0xdeadbeef", "at #"),
        ("worker gpu-1767268800-0c1f1d5e-6e5c-4a55-9d36-0d4a7f7a3f10 is gone", "worker gpu-# is gone"),
        ("out   of\tmemory", "out of memory"),
        ("the facade is decade old", "the facade is decade old"),
    ],
)
def test_ids_and_numbers_are_replaced(line: str, cause: str) -> None:
    assert normalised(line) == cause


def test_a_traceback_is_told_by_its_last_line_and_a_message_by_its_first() -> None:
    assert cause_of(TRACE[:200], TRACE) == "ValueError: no weights at /models/#/N.bin"
    assert cause_of("no such model\nsee the list", "no such model\nsee the list") == "no such model"


def test_a_traceback_that_lost_its_beginning_is_still_one() -> None:
    cut = 'eta.py", line 3, in main\n' + TRACE[35:]
    assert cause_of(cut[:200], cut) == "ValueError: no weights at /models/#/N.bin"


def test_no_error_is_a_cause_too() -> None:
    assert cause_of("", "") == cause_of("  \n", " \n") == "no error was told"


def test_a_cause_is_no_longer_than_a_heading() -> None:
    assert len(normalised("x" * 10_000)) == LONGEST


def test_a_key_tells_type_class_and_cause_apart() -> None:
    keys = {key_of(*each) for each in (("a", "b", "c"), ("ab", "", "c"), ("a", None, "bc"), ("a", "b", "d"))}
    assert len(keys) == 4
    assert key_of("a", "b", "c") == key_of("a", "b", "c")


@pytest.mark.parametrize("line", ["a-" * 20_000, "aaaa-" * 10_000, "aaaaaaaa" + "-aa" * 10_000 + "g", "0x" * 20_000])
def test_no_line_costs_more_than_its_length(line: str) -> None:
    """Some milliseconds; what looks ahead from every letter takes minutes."""
    began = time.thread_time()
    assert normalised(line)
    assert time.thread_time() - began < 3
