"""`herdsman whatif` as a person types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdsman.cli.main import app
from herdsman.core.errors import HerdsmanError

JOBS = "arrival_s,service_s,class\n" + "".join(f"{at * 20},45,a\n" for at in range(200))


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def said(*words: str) -> str:
    found = CliRunner().invoke(app, ["whatif", *words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_two_policies_are_compared_in_a_table(trace: Path) -> None:
    text = said("--trace", str(trace), "--policy", "threshold", "--compare", "adaptive", "--price", "0.5")
    assert "200 jobs in 1.1 h, 2.5 GPU-hours of work" in text
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["threshold", "adaptive"]
    assert "GPU-hours" in text.splitlines()[-1]


def test_a_sweep_gives_a_document_a_page_and_a_recommendation(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "it.html"
    text = said(
        "--trace", str(trace), "--sweep", "MIN_ACTIVE_GPUS=0..2", "--target-wait", "60", "--html", str(page),
        "-o", "json",
    )  # fmt: skip
    found = json.loads(text)
    assert [each["name"] for each in found["outcomes"]] == [
        f"threshold MIN_ACTIVE_GPUS={least}" for least in range(3)
    ]
    assert found["target_wait_s"] == 60
    assert found["recommended"] in {each["name"] for each in found["outcomes"]}
    assert page.read_text().count("<circle") == 3


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "either --trace FILE or --history"),
        (
            ["--trace", "jobs.csv", "--policy", "nope"],
            "not installed; there are: adaptive, threshold, workload",
        ),
        (["--trace", "jobs.csv", "--set", "NOPE=1"], "HERDSMAN_NOPE .* is not a setting"),
        (["--trace", "jobs.csv", "--set", "MAX_ACTIVE_GPUS=-1"], "must be a whole number"),
        (["--trace", "jobs.csv", "--set", "MAX_ACTIVE_GPUS"], "is not NAME=VALUE"),
        (["--trace", "jobs.csv", "--set", "MAX_ACTIVE_GPUS=0"], "MAX_ACTIVE_GPUS is 0"),
        (["--trace", "jobs.csv", "--sweep", "MIN_ACTIVE_GPUS=5..1"], "holds nothing"),
        (["--trace", "gone.csv"], "cannot be read"),
    ],
)
@pytest.mark.usefixtures("trace")
def test_what_cannot_be_replayed_is_said(words: list[str], why: str) -> None:
    with pytest.raises(HerdsmanError, match=why):
        CliRunner().invoke(app, ["whatif", *words], catch_exceptions=False)
