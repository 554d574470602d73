"""The pepper, the files that hold secrets, and the text of a token."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.access.authenticator import Keyring, load_pepper
from herdsman.access.rules import Caller, Role, token_id, token_text
from herdsman.access.secret_file import read_secret, write_secret, write_secret_once
from herdsman.errors import InvalidSettings
from herdsman.ids import WorkerId
from tests.support.threads import at_once


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A file is private because we say so, not because the machine is careful."""
    usual = os.umask(0)
    yield
    os.umask(usual)


def test_the_pepper_is_made_once_and_kept_private(tmp_path: Path) -> None:
    file = tmp_path / "new" / "pepper"
    first = load_pepper(None, file)
    assert len(first) >= 32
    assert load_pepper(None, file) == first
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_setting_stands_above_the_file(tmp_path: Path) -> None:
    assert load_pepper("s" * 32, tmp_path / "pepper") == b"s" * 32
    assert not (tmp_path / "pepper").exists()


def test_a_short_pepper_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="TOKEN_PEPPER"):
        load_pepper("short", tmp_path / "pepper")


def test_replicas_that_start_at_once_agree(tmp_path: Path) -> None:
    found = at_once(8, lambda _number: load_pepper(None, tmp_path / "pepper"))
    assert len(set(found)) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["pepper"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    write_secret(file, "x")
    assert read_secret(file) == "x"
    file.chmod(mode)
    with pytest.raises(InvalidSettings, match="chmod 600"):
        read_secret(file)


def test_a_secret_is_replaced_whole_or_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    write_secret(file, "one")
    write_secret_once(file, "two")
    assert read_secret(file) == "one"
    write_secret(file, "three")
    assert read_secret(file) == "three"
    assert read_secret(tmp_path / "nothing") is None


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match="cannot be written"):
        write_secret(tmp_path / "file" / "secret", "x")


@given(st.sampled_from(Role), st.binary(min_size=8, max_size=8), st.binary(min_size=32, max_size=32))
def test_the_id_of_a_token_is_found_again(role: Role, named: bytes, secret: bytes) -> None:
    assert token_id(token_text(role, named.hex(), secret)) == named.hex()


@given(st.binary(min_size=32, max_size=32), st.integers(0, 200), st.characters(codec="ascii"))
def test_a_slip_of_one_character_is_noticed(secret: bytes, place: int, other: str) -> None:
    text = token_text(Role.ADMIN, "0123456789abcdef", secret)
    place %= len(text)
    slipped = f"{text[:place]}{other}{text[place + 1 :]}"
    assert slipped == text or token_id(slipped) is None


@given(st.text(max_size=200))
def test_any_text_may_be_asked_about(text: str) -> None:
    assert token_id(text) is None
    Keyring(pepper=b"p" * 32).hash(text)


def test_a_keyring_does_not_show_its_pepper() -> None:
    assert "hunter2" not in repr(Keyring(pepper=b"hunter2" * 8))


def test_a_caller_is_named_by_what_it_is() -> None:
    worker = Caller(token_id="t", role=Role.WORKER, name="label", worker_id=WorkerId("w1"))
    assert worker.who == "worker:w1"
    assert Caller(token_id="t", role=Role.ADMIN, name="ann").who == "admin:ann"
    assert Caller(token_id="t", role=Role.METRICS).who == "metrics:t"


def test_only_a_submitter_is_bound_to_an_agent() -> None:
    ann = Caller(token_id="t", role=Role.SUBMITTER, agent="ann")
    assert (ann.sees("ann"), ann.sees("bob"), ann.only_agent) == (True, False, "ann")
    assert not Caller(token_id="t", role=Role.SUBMITTER).sees("ann")
    assert Caller(token_id="t", role=Role.VIEWER, agent="ann").sees("bob")
