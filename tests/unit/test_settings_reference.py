"""The pages that are written from the settings."""

import subprocess
import sys
from pathlib import Path

from herdsman.settings import Origin, load_settings, rows
from herdsman.settings.model import CATALOGUE
from scripts.settings_reference import env_example, reference_page

ROOT = Path(__file__).parents[2]
AGAIN = "run `python -m scripts.settings_reference` to write it again"


def test_the_reference_page_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/settings.md").read_text() == reference_page(), AGAIN


def test_the_example_is_up_to_date() -> None:
    assert (ROOT / ".env.example").read_text() == env_example(), AGAIN


def test_the_command_writes_both(tmp_path: Path) -> None:
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-m", "scripts.settings_reference"], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True
    )
    assert (tmp_path / "docs/reference/settings.md").read_text() == reference_page()
    assert (tmp_path / ".env.example").read_text() == env_example()


def test_the_pages_do_not_depend_on_the_machine() -> None:
    assert str(Path.home()) not in reference_page() + env_example()


def test_both_pages_name_every_setting() -> None:
    for name in CATALOGUE:
        assert f"| `{name}` |" in reference_page()
        assert f"\n# {name}=" in env_example()


def test_the_example_loads_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(env_example())
    assert load_settings({}, tmp_path) == load_settings({}, Path("/nonexistent"))


def test_every_line_of_the_example_may_be_taken_as_it_is(tmp_path: Path) -> None:
    lines = (line for line in env_example().splitlines() if not line.startswith("# HERDSMAN_CONFIG"))
    (tmp_path / ".env").write_text("\n".join(_uncommented(line) for line in lines))
    shown = rows(load_settings({}, tmp_path))
    assert all(row.value == row.default for row in shown)
    assert sum(row.origin is Origin.DOTENV for row in shown) > 90


def _uncommented(line: str) -> str:
    name = line.removeprefix("# ").partition("=")[0]
    return line.removeprefix("# ") if name.removesuffix("_FILE") in CATALOGUE else line
