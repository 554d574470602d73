"""What a benchmark beside peers says of itself: aims, peers that are not there, and answers that have come whole."""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.aims import Aim, conclude, over, verdict
from bench.asked import chosen, measured, versions_of
from bench.dispatch import aims as dispatch_aims
from bench.drain import aims as drain_aims
from bench.drain import name_of
from bench.load import answer_body
from bench.machine import Watch, cpu_of_all_s
from bench.peers.peer import Drained, Passage, Peer, PeerFailed


class Installed:
    name = "there"

    def version(self) -> str:
        return "1.0"

    def drain(self, jobs: int) -> Drained:
        return Drained(per_second=jobs / 2, cpu_s=0.001)

    def through(self, jobs: int) -> Passage:
        return Passage(submitted=jobs, through=jobs)

    def latency(self, samples: int, pause_s: float) -> list[float]:
        return [pause_s] * samples


class Missing(Installed):
    name = "not there"

    def version(self) -> str:
        raise PeerFailed("it is not installed")

    def drain(self, jobs: int) -> Drained:
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
    found = measured(everyone, versions, lambda peer: peer.drain(200).per_second)
    assert found == {"there": 100.0, "not there": None}


def test_only_those_that_were_asked_for_are_measured() -> None:
    asked = argparse.Namespace(peers_python="python", arq_python="python", only=["there", "celery"])
    assert [peer.name for peer in chosen(asked, [Installed()], ["celery", "arq"])] == ["there", "celery"]
    asked.only = None
    assert [peer.name for peer in chosen(asked, [Installed()], ["arq"])] == ["there", "arq"]


def test_a_drain_is_held_against_peers_and_mariadb_against_postgresql() -> None:
    rates = {
        name_of("PostgreSQL", "batch 100"): (2_000.0, 1_000.0, 3_000.0),
        name_of("MariaDB", "batch 100"): (1_000.0,),
        name_of("SQLite", "one at a time"): (1_000.0,),
        "pgqueuer, batch 100": (2_000.0,),
        "celery": (500.0,),
    }
    rounds = {name: [Drained(per_second=each, cpu_s=0.0) for each in found] for name, found in rates.items()}
    found = {aim.what: aim.reached for aim in drain_aims(rounds)}
    assert found[f"{name_of('PostgreSQL', 'batch 100')}, against pgqueuer, batch 100"] is True
    assert found[f"{name_of('SQLite', 'one at a time')}, against celery"] is False
    assert found[f"{name_of('PostgreSQL', 'one at a time')}, against celery"] is None
    assert found[f"{name_of('PostgreSQL', 'batch 100')}, against MariaDB"] is False


def test_a_ratio_that_fell_by_a_third_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rising, falling = Aim(what="a", ratio=3.0, least=9.0), Aim(what="b, against c", ratio=2.0, most=1.0)
    (tmp_path / "table.md").write_text(f"| x |\n\n{verdict([rising, falling])}\n")
    asked, watch = argparse.Namespace(quick=False, write=None), Watch()
    monkeypatch.setattr("bench.aims.RESULTS", tmp_path)
    monkeypatch.setattr(watch, "foreign", lambda: 0.0)

    def concluded(*aims: Aim) -> int:
        return conclude(asked, "table", "text", aims, watch)

    assert concluded(rising, falling) == 0
    assert concluded(replace(rising, ratio=2.1), replace(falling, ratio=2.9)) == 0
    assert concluded(replace(rising, ratio=2.0)) == 1
    assert "FALLEN  a: 2.00x, it was 3.00x" in capsys.readouterr().err
    assert concluded(replace(falling, ratio=3.0)) == 1
    assert concluded(Aim(what="new", ratio=0.1, least=1.0), replace(rising, ratio=None)) == 0


def test_a_loaded_machine_gives_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, watch = argparse.Namespace(quick=False, write=tmp_path / "kept.md"), Watch()
    monkeypatch.setattr(watch, "foreign", lambda: 0.11)
    assert conclude(asked, "none", "text", [], watch) == 2
    assert "other programs used 11% of the machine" in capsys.readouterr().err
    assert not asked.write.exists()
    monkeypatch.setattr(watch, "foreign", lambda: 0.09)
    assert conclude(asked, "none", "text", [], watch) == 0
    assert asked.write.read_text() == "text"


def test_cpu_of_children_counts_whether_they_live_or_have_ended() -> None:
    """Nothing twice: what one has used moves to the process that waits for it."""
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nimport sys; sys.stdin.read()"
    before = cpu_of_all_s()
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive = cpu_of_all_s() - before
        child.communicate()
    ended = cpu_of_all_s() - before
    assert 0.25 < alive <= ended < alive + 0.25


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
