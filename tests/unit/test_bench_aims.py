"""What a benchmark beside peers says of itself: aims, peers that are not there, and answers that have come whole."""

import argparse

import pytest

from bench.aims import Aim, over, verdict
from bench.asked import chosen, measured, versions_of
from bench.dispatch import aims as dispatch_aims
from bench.drain import aims as drain_aims
from bench.drain import name_of
from bench.load import answer_body
from bench.peers.peer import Passage, Peer, PeerFailed


class Installed:
    name = "there"

    def version(self) -> str:
        return "1.0"

    def drain(self, jobs: int) -> float:
        return jobs / 100

    def through(self, jobs: int) -> Passage:
        return Passage(submitted=jobs, through=jobs)

    def latency(self, samples: int, pause_s: float) -> list[float]:
        return [pause_s] * samples


class Missing(Installed):
    name = "not there"

    def version(self) -> str:
        raise PeerFailed("it is not installed")

    def drain(self, jobs: int) -> float:
        raise AssertionError(f"{jobs} jobs were asked of a peer that is not installed")


@pytest.mark.parametrize(
    ("aim", "expected"),
    [
        (Aim(what="a", ratio=3.0, least=3.0), "reached a: 3.00x, the aim is at least 3.0x"),
        (Aim(what="a", ratio=2.99, least=3.0), "MISSED  a: 2.99x, the aim is at least 3.0x"),
        (Aim(what="a", ratio=1.5, most=1.5), "reached a: 1.50x, the aim is at most 1.5x"),
        (Aim(what="a", ratio=1.51, most=1.5), "MISSED  a: 1.51x, the aim is at most 1.5x"),
        (Aim(what="a", ratio=None, most=1.5), "unknown a: not measured, the aim is at most 1.5x"),
    ],
)
def test_an_aim_says_whether_it_was_reached(aim: Aim, expected: str) -> None:
    assert str(aim) == expected
    assert expected in verdict([aim])


def test_what_was_not_measured_has_no_ratio() -> None:
    assert over(3.0, 2.0) == 1.5
    assert over(None, 2.0) is None
    assert over(3.0, None) is None


def test_a_peer_that_is_not_installed_is_named_and_not_measured() -> None:
    everyone: list[Peer] = [Installed(), Missing()]
    versions = versions_of(everyone)
    assert versions == {"there": "1.0"}
    found = measured(everyone, versions, lambda peer: peer.drain(200))
    assert found == {"there": 2.0, "not there": None}


def test_only_those_that_were_asked_for_are_measured() -> None:
    asked = argparse.Namespace(peers_python="python", arq_python="python", only=["there", "celery"])
    assert [peer.name for peer in chosen(asked, [Installed()], ["celery", "arq"])] == ["there", "celery"]
    asked.only = None
    assert [peer.name for peer in chosen(asked, [Installed()], ["arq"])] == ["there", "arq"]


def test_a_drain_is_held_against_the_batch_of_pgqueuer_and_against_celery() -> None:
    rates = {
        name_of("PostgreSQL", 100): 3_000.0,
        name_of("SQLite", 1): 1_000.0,
        "pgqueuer, batch 100": 2_000.0,
        "celery": 500.0,
    }
    found = {aim.what: aim.reached for aim in drain_aims(rates)}
    assert found[f"{name_of('PostgreSQL', 100)}, against pgqueuer, batch 100"] is True
    assert found[f"{name_of('SQLite', 1)}, against celery"] is False
    assert found[f"{name_of('PostgreSQL', 1)}, against celery"] is None


def test_a_dispatch_is_held_against_the_floor_of_its_own_store() -> None:
    times = {
        "SQLite alone, polled without a pause": [0.010] * 100,
        "PostgreSQL alone, LISTEN and NOTIFY": [0.001] * 100,
        "Herdsman, SQLite": [0.012] * 100,
        "Herdsman, PostgreSQL": [0.012] * 100,
    }
    assert [aim.reached for aim in dispatch_aims(times)] == [True, False]


def test_an_answer_is_whole_when_its_body_is() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    assert answer_body(head[:-2]) is None
    assert answer_body(head + b"abcd") is None
    assert answer_body(head + b"abcde") == b"abcde"
    with pytest.raises(OSError, match="no Content-Length"):
        answer_body(b"HTTP/1.1 200 OK\r\n\r\n")
