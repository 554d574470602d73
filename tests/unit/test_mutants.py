"""A mutant whose text is gone from the code would be killed for the wrong reason, or not run at all."""

import shutil
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_fits_the_code(mutant: Mutant, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    mutant.apply(tmp_path / "src")
    assert all((ROOT / test).is_file() for test in mutant.noticed_by)


def test_there_are_enough_of_them() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 8
