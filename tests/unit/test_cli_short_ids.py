"""The beginning or the end of an id is enough where it fits only one."""

import pytest

from herdsman.cli.connect import fits, pick
from herdsman.errors import InvalidRequest, NotFound

KNOWN = ["01a1dfa4ef1d47c0dc4aaa4fa8ef68de", "01a1dfa4ef1db76a388dcd6c8a9569a5", "img-1", "img-10"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("01a1dfa4ef1d4", KNOWN[0]),
        ("9569a5", KNOWN[1]),
        (KNOWN[1], KNOWN[1]),
        ("img-1", "img-1"),
        ("img-10", "img-10"),
    ],
)
def test_what_fits_one_is_that_one(typed: str, meant: str) -> None:
    assert pick("job", typed, KNOWN) == meant


def test_an_id_that_is_the_beginning_of_another_is_itself() -> None:
    assert pick("job", "img-1", ["img-10", "img-11", "img-1"]) == "img-1"


def test_what_fits_several_lists_them() -> None:
    with pytest.raises(InvalidRequest) as error:
        pick("job", "01a1", KNOWN)
    assert str(error.value).startswith(f"'01a1' fits 2 jobs: {KNOWN[0]}, {KNOWN[1]};")


def test_of_very_many_some_are_listed_and_the_others_counted() -> None:
    with pytest.raises(InvalidRequest, match=r"fits 20 jobs: .* and 12 more"):
        pick("job", "abcd", [f"abcd{number}" for number in range(20)])


@pytest.mark.parametrize("typed", ["01a", "569a5", "", "a4ef"])
def test_too_little_or_the_middle_fits_nothing(typed: str) -> None:
    assert not any(fits(typed, each) for each in KNOWN)
    with pytest.raises(NotFound, match="there is no job"):
        pick("job", typed, KNOWN)


def test_what_is_near_is_offered() -> None:
    with pytest.raises(NotFound, match="there is no job 'imgg-1'; did you mean img-1"):
        pick("job", "imgg-1", KNOWN)


def test_an_id_that_is_listed_twice_is_one() -> None:
    assert pick("worker", "68de12", ["gpu-68de12", "gpu-68de12"]) == "gpu-68de12"
