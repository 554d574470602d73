"""One seed is one story: in any process, after any others, on any day."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.amounts import SOAK

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(20, 40 if SOAK else 24)


def hashes(seeds: Sequence[int], hash_seed: str, zone: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.hashes", *map(str, seeds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": zone},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.timeout(600)
def test_a_seed_tells_one_story_whatever_was_run_before_it_and_however_texts_are_hashed() -> None:
    forwards = hashes(SEEDS, hash_seed="1", zone="UTC")
    backwards = hashes(SEEDS[::-1], hash_seed="4711", zone="Asia/Tokyo")
    assert forwards == backwards
    assert len(set(forwards.values())) == len(SEEDS), "each seed tells a story of its own"
