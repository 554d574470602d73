"""`herdsman sim`, as a person types it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from herdsman.cli import sim
from herdsman.cli.main import app
from herdsman.cli.sim import LAST_SEED, chosen_seeds
from herdsman.errors import InvalidRequest
from herdsman.testing.simulation.faults import Fault
from herdsman.testing.simulation.runner import Order, Ran, Runner
from herdsman.testing.simulation.scenarios import SCENARIOS


def said(*words: str) -> Result:
    return CliRunner().invoke(app, ["sim", *words], catch_exceptions=False)


@pytest.mark.parametrize(
    ("seed", "seeds", "sentence"),
    [
        (None, None, "nothing to run: give either --seed N or --seeds A..B"),
        (1, "1..2", "nothing to run: give either --seed N or --seeds A..B"),
        (None, "5..2", "--seeds is 5..2, which ends before it begins: write 2..5"),
        (None, "a..b", "--seeds is 'a..b': write two whole numbers from 0 to 9223372036854775808"),
        (None, "-3..5", "--seeds is '-3..5': write two whole numbers"),
        (None, "3", "--seeds is '3': write two whole numbers"),
        (None, "1..", "--seeds is '1..': write two whole numbers"),
        (None, "1..2..3", "--seeds is '1..2..3': write two whole numbers"),
        (None, "\u0661..\u0662", "write two whole numbers"),
        (None, "0..9223372036854775809", "the last seed is 9223372036854775808"),
        (None, "0..10000000", "which is 10,000,001 seeds: at most 10,000,000 at a time"),
    ],
)
def test_what_names_no_seeds_is_refused_in_a_sentence(seed: int | None, seeds: str | None, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chosen_seeds(seed, seeds)
    assert sentence in str(refused.value)


def test_seeds_are_named_with_both_ends() -> None:
    assert chosen_seeds(None, "3..5") == range(3, 6)
    assert chosen_seeds(None, " 7 .. 7 ") == range(7, 8)
    assert chosen_seeds(LAST_SEED, None) == range(LAST_SEED, LAST_SEED + 1)
    assert len(chosen_seeds(None, f"{LAST_SEED - 9_999_999}..{LAST_SEED}")) == 10_000_000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--faults", "crash,earthquake"), "--faults is 'crash,earthquake': write all, none, or some of"),
        (("--faults", ""), "--faults is ''"),
        (("--scenario", "mars"), "--scenario is 'mars': write one of all, jobs, fleet"),
    ],
)
def test_unknown_faults_and_scenarios_are_refused_with_those_that_there_are(
    words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        said("run", "--seed", "1", *words)
    assert sentence in str(refused.value)


def test_every_fault_and_every_scenario_is_explained() -> None:
    listed = json.loads(said("faults", "-o", "json").stdout)["faults"]
    assert {each["name"]: each["said"] for each in listed} == {str(fault): fault.said for fault in Fault}
    printed = said("scenarios").stdout
    assert all(name in printed and each.said in printed for name, each in SCENARIOS.items())


def test_a_good_seed_says_what_occurred_in_it() -> None:
    found = said("run", "--seed", "17")
    assert found.exit_code == 0
    assert "what happened in it:" in found.stdout
    assert "its last" not in found.stdout
    last = found.stdout.splitlines()[-1]
    assert last.startswith("1 seed, 0 violations, ")
    again = said("run", "--seed", "17", "--faults", "all", "-o", "json").stdout
    assert last.endswith(f", hash {json.loads(again)['hash']}")


def test_a_story_can_be_asked_for_and_the_largest_seed_has_one() -> None:
    found = said("run", "--seed", str(LAST_SEED), "--story", "7", "--faults", "-crash")
    assert found.exit_code == 0
    assert "its last 7 steps:\n" in found.stdout


@pytest.fixture
def a_failing_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runner.run

    def run(self: Runner, seed: int) -> Ran:
        return replace(real(self, seed), violations=("lost: job-3 was accepted, and is gone", "pods: 2"))

    monkeypatch.setattr(Runner, "run", run)


@pytest.mark.usefixtures("a_failing_seed")
def test_a_failing_seed_is_told_with_its_replay_and_its_last_steps() -> None:
    found = said("run", "--seed", "17", "--scenario", "leader", "--story", "3000")
    assert found.exit_code == 1
    assert "  lost: job-3 was accepted, and is gone\n  pods: 2\n" in found.stdout
    replay = f"herdsman sim run --seed 17 --faults {SCENARIOS['leader'].faults} --scenario leader"
    assert f"replay it: {replay}\n" in found.stdout
    struck = [line for line in found.stdout.splitlines() if line.startswith("  ! ")]
    assert struck
    assert all(line.split()[-2] == "!" and line.split()[-1] in set(Fault) for line in struck)
    assert "1 seed, 2 violations in 1 seed, " in found.stdout


@pytest.mark.usefixtures("a_failing_seed")
def test_a_failing_seed_as_a_document() -> None:
    found = said("run", "--seed", "17", "--story", "4", "-o", "json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    (failing,) = document["failing"]
    assert (document["seeds"], document["violations"], document["failed"]) == (1, 2, 1)
    assert failing["replay"] == "herdsman sim run --seed 17 --faults all --scenario all"
    assert (failing["seed"], len(failing["story"])) == (17, 4)


def test_another_story_in_another_process_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(("0123456789abcdef", "fedcba9876543210"))

    def sweep(order: Order, _: int) -> Generator[Ran]:
        yield replace(Runner(order).run(3), hash=next(times))

    monkeypatch.setattr(sim, "sweep", sweep)
    found = said("run", "--seed", "3", "--verify", "--faults", "none")
    assert found.exit_code == 1
    assert "determinism: its hash was 0123456789abcdef, and fedcba9876543210 when it was run again" in (found.stdout)


def herdsman(directory: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "herdsman", "sim", *words],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.timeout(300)
def test_seeds_are_run_twice_in_several_processes(tmp_path: Path) -> None:
    running = herdsman(tmp_path, "run", "--seeds", "4..5", "--verify", "-j", "2", "-o", "json")
    printed, complaints = running.communicate(timeout=280)
    document = json.loads(printed)
    assert (running.returncode, complaints, document["failing"]) == (0, "", [])
    assert (document["seeds"], document["interrupted"]) == (2, False)
    assert len(document["hash"]) == 16


@pytest.mark.timeout(300)
def test_ctrl_c_ends_all_processes_and_says_how_far_it_was(tmp_path: Path) -> None:
    running = herdsman(tmp_path, "run", "--seeds", "0..1000000", "-j", "2")
    try:
        while len(_children(running.pid)) < 2:
            assert running.poll() is None
            time.sleep(0.05)
        # The terminal sends it to all of them; only who can end in order may hear it.
        assert all(_is_deaf_to(signal.SIGINT, child) for child in _children(running.pid))
        os.killpg(running.pid, signal.SIGINT)
        printed, complaints = running.communicate(timeout=120)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate(timeout=60)
    assert (running.returncode, complaints) == (130, "")
    # That it was read to its end says more: nobody is left who could write.
    assert printed.startswith("interrupted, ")


@pytest.mark.timeout(300)
def test_processes_leave_when_who_started_them_is_killed(tmp_path: Path) -> None:
    running = herdsman(tmp_path, "run", "--seeds", "0..1000000", "-j", "2")
    while len(_children(running.pid)) < 2:
        assert running.poll() is None
        time.sleep(0.05)
    running.kill()
    running.communicate(timeout=200)
    # The pipes that were read above to their ends are held by all of them.
    assert running.returncode == -signal.SIGKILL


def test_without_greenlet_it_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['greenlet'] = None; from herdsman.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "sim", "run", "--seed", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "herdsman: herdsman sim needs the package greenlet, which is not installed here: install herdsman[server,sim]\n"
    )


def _is_deaf_to(number: int, pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (blocked,) = re.findall(r"^SigBlk:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(blocked, 16) & 1 << number - 1)


def _children(pid: int) -> list[int]:
    """Those that run seeds: started by spawn, and not the one that only keeps account."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(place.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            words = place.joinpath("cmdline").read_text()
        except OSError:
            continue
        if parent == pid and "spawn_main" in words:
            found.append(int(place.name))
    return found
