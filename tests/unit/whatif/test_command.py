"""`herdsman whatif` as a person types it."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdsman.cli import whatif as command
from herdsman.cli.main import app
from herdsman.errors import HerdsmanError, InvalidRequest

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
    assert [each["name"] for each in found["outcomes"]] == [f"threshold MIN_ACTIVE_GPUS={least}" for least in range(3)]
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
        (["--trace", "jobs.csv", "--set", "=1"], "is not NAME=VALUE"),
        (["--trace", "jobs.csv", "--set", "A B=1"], "HERDSMAN_A B .* is not a setting"),
        (["--trace", "jobs.csv", "--set", "MIN_ACTIVE_GPUS=99"], "MIN_ACTIVE_GPUS"),
        (["--trace", "jobs.csv", "--compare", "nope"], "not installed"),
        (["--trace", "jobs.csv", "--policy", ""], "SCALING_POLICY"),
        (["--trace", "jobs.csv", "--sweep", "MIN_ACTIVE_GPUS"], "is not NAME=VALUE"),
        (["--trace", "jobs.csv", "--sweep", "MIN_ACTIVE_GPUS=1..2..3"], "neither a range"),
        (["--trace", "jobs.csv", "--sweep", "MIN_ACTIVE_GPUS=1,,2"], "neither a range"),
        (["--trace", "jobs.csv", "--sweep", "MIN_ACTIVE_GPUS=0..1:0"], "in steps of 1 or more"),
        (["--trace", "jobs.csv", "--sweep", f"MIN_ACTIVE_GPUS=0..{'9' * 5000}"], "neither a range"),
        (["--trace", "jobs.csv", "--sweep", "MIN_ACTIVE_GPUS=0..999999"], "more than 200 values"),
        (["--trace", "jobs.csv", "--sweep", "NOPE=1,2"], "is not a setting"),
        (["--trace", "jobs.csv", "--target-wait", "inf"], "--target-wait is inf"),
        (["--trace", "jobs.csv", "--price", "inf"], "--price is inf"),
        (
            ["--trace", "jobs.csv", "--boot-s", "1e300"],
            "--boot-s is 1e.300: give a number up to 1,000,000,000",
        ),
        (["--trace", "jobs.csv", "--html", "gone/it.html"], "gone/it.html cannot be written"),
        (["--trace", "jobs.csv", "--html", "."], "cannot be written"),
        (["--trace", "jobs.csv", "--png", "gone/it.png"], "gone/it.png cannot be written"),
        (["--trace", "jobs.csv", "--cycles"], "--cycles is about the recorded cycles of this database"),
        (["--history", "--cycles", "--compare", "adaptive"], "--compare cannot be used with --cycles"),
        (["--history", "--trace", "jobs.csv"], "give either --trace FILE or --history"),
    ],
)
@pytest.mark.usefixtures("trace")
def test_what_cannot_be_replayed_is_said(words: list[str], why: str) -> None:
    with pytest.raises(HerdsmanError, match=why):
        CliRunner().invoke(app, ["whatif", *words], catch_exceptions=False)


@pytest.mark.parametrize(
    "words",
    [["--days", "nan"], ["--boot-spread-s", "nan"], ["--failing", "nan"], ["--days", "inf"], ["--seed", "x"]],
)
def test_a_number_outside_of_its_range_is_refused(trace: Path, words: list[str]) -> None:
    ran = CliRunner().invoke(app, ["whatif", "--trace", str(trace), *words], catch_exceptions=False)
    assert ran.exit_code == 2
    assert words[0] in ran.output


def test_a_picture_is_a_png_whatever_its_name(trace: Path, tmp_path: Path) -> None:
    """Signs of mathematics in a name are nothing to matplotlib, nor is an ending that it does not know."""
    odd, picture = trace.rename(tmp_path / "a$b^.csv"), tmp_path / "it.picture"
    said("--trace", str(odd), "--png", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_is_refused_before_the_replay(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(command, "read_trace", None)
    with pytest.raises(InvalidRequest, match=r"install herdsman\[sim\], or ask for --html only"):
        said("--trace", str(trace), "--png", str(tmp_path / "it.png"))


def test_a_picture_that_fails_leaves_what_was_there(trace: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.html"
    old.write_text("mine")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        said("--trace", str(trace) + "x", "--html", str(old))
    with pytest.raises(InvalidRequest, match="cannot be read"):
        said("--trace", str(trace) + "x", "--html", str(tmp_path / "new.html"))
    assert (old.read_text(), (tmp_path / "new.html").exists()) == ("mine", False)


def test_waits_are_told_by_class_where_there_are_several(trace: Path) -> None:
    rows = [f"{at * 20},45,{'small' if at % 4 else '[big]'}" for at in range(200)]
    trace.write_text("arrival_s,service_s,class\n" + "\n".join(rows))
    text = said("--trace", str(trace), "--policy", "threshold", "--compare", "adaptive")
    table = [line.split()[:3] for line in text.splitlines() if line.startswith(("small", "[big]"))]
    assert table == [
        ["small", "threshold", "150"], ["small", "adaptive", "150"],
        ["[big]", "threshold", "50"], ["[big]", "adaptive", "50"],
    ]  # fmt: skip
    (one,) = json.loads(said("--trace", str(trace), "-o", "json"))["outcomes"]
    assert [(each["class"], each["jobs"]) for each in one["by_class"]] == [("small", 150), ("[big]", 50)]
    assert max(each["max_s"] for each in one["by_class"]) == one["wait_max_s"]
    assert sum(each["jobs"] * each["mean_s"] for each in one["by_class"]) == pytest.approx(200 * one["wait_mean_s"])


def test_many_replays_are_not_told_by_class(trace: Path) -> None:
    trace.write_text(JOBS + "9000,5,b\n")
    text = said("--trace", str(trace), "--sweep", "MIN_ACTIVE_GPUS=0..4")
    assert "CLASS " not in text
    assert "-o json has them" in text


def test_one_class_is_no_reason_for_a_table(trace: Path) -> None:
    assert "CLASS" not in said("--trace", str(trace))
