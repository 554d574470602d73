"""Which database started an instance, and whether the one at hand may be a copy."""

import pytest

from herdsman.fleet.model import Installation, Stamp, moved, same_place
from tests.support.fleets import INSTALLATION, a_name

FILE = {"path": "/data/herd.db", "inode": "7", "machine": "m1"}
SERVER = {"system": "701", "database": "16384"}


@pytest.mark.parametrize("name", [a_name("w1", number=12), a_name("with--marks", number=12)])
def test_a_stamp_is_read_from_the_name_that_carries_it(name: str) -> None:
    assert Stamp.of(name) == Stamp(INSTALLATION, 12)


@pytest.mark.parametrize(
    "name", ["gpu--test--gpu-17", "gpu--test--ABCDEF012345-1--w", "gpu--test--abcdef012345-x--w", "pod", ""]
)
def test_other_names_carry_none(name: str) -> None:
    assert Stamp.of(name) is None


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (FILE, FILE, True),
        (FILE, {**FILE, "path": "/moved.db"}, True),
        (FILE, {**FILE, "inode": "8"}, True),
        (FILE, {**FILE, "path": "/mnt/herd.db", "machine": "m2"}, True),
        (FILE, {**FILE, "path": "/copy.db", "inode": "8"}, False),
        (FILE, {**FILE, "inode": "8", "machine": "m2"}, False),
        (SERVER, SERVER, True),
        (SERVER, {**SERVER, "database": "16999"}, False),
        (SERVER, {**SERVER, "system": "702"}, False),
        (FILE, SERVER, False),
    ],
)
def test_a_place_is_known_again(before: dict[str, str], now: dict[str, str], same: bool) -> None:
    assert same_place(before, now) is same
    assert (moved(before, now) == "") is same
    assert ("may be a copy" in Installation(id=INSTALLATION, place=before).doubt(now, ())) is not same


def test_what_is_told_of_a_place_in_public_is_nothing() -> None:
    copied = {**FILE, "path": "/copy.db", "inode": "8"}
    assert moved(FILE, copied) == "it was at path /data/herd.db, and is at path /copy.db"
    assert "/" not in Installation(id=INSTALLATION, place=FILE).doubt(copied, ())


def test_a_higher_number_on_an_instance_of_ours_shows_that_time_was_lost() -> None:
    known = Installation(id=INSTALLATION, spawned=3, place=FILE)
    assert known.doubt(FILE, [a_name("w", number=3), a_name("w", "012345abcdef", 9), "gpu--a--x"]) == ""
    assert "is start number 4, and it remembers 3" in known.doubt(FILE, [a_name("w", number=4)])
