"""A word that is slightly wrong is answered with the one that was meant."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from herdsman.cli.main import app
from herdsman.cli.output import did_you_mean


def typed(*words: str) -> str:
    run = CliRunner().invoke(app, list(words), env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})
    assert run.exit_code == 2, run.output
    return " ".join(run.output.split())


def test_only_what_is_near_is_offered() -> None:
    assert did_you_mean("pendin", ["pending", "done"]) == "; did you mean pending?"
    assert did_you_mean("xyz", ["pending", "done"]) == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jbos",), "there is no command 'jbos'; did you mean job"),
        (("doktor",), "did you mean doctor?"),
        (("xyzzy",), "there is no command 'xyzzy'; herdsman --help lists them"),
        (("jobs", "--status", "pendin"), "did you mean pending?"),
        (("workers", "--status", "activ"), "did you mean active?"),
        (("events", "--kind", "jbo"), "did you mean job?"),
        (("jobs", "-o", "tabel"), "did you mean table?"),
        (("jobs", "--limt", "3"), "--limit"),
        (("pool", "lst"), "Did you mean 'list'?"),
        (("chaos", "kill-wroker"), "Did you mean 'kill-worker'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(words: tuple[str, ...], said: str) -> None:
    assert said in typed(*words)


def test_an_old_name_is_not_offered() -> None:
    assert "did you mean spawn-gpu?" in typed("spawn_gpus")


def completed(shell: str, **environment: str) -> str:
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv[0] = 'herdsman'; from herdsman.cli.main import main; main()",
        ],
        env={**os.environ, "_HERDSMAN_COMPLETE": f"complete_{shell}", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stderr == ""
    return run.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("herdsman jo", ["jobs", "job"]),
        ("herdsman jobs --status pe", ["pending"]),
        ("herdsman jobs --wat", ["--watch"]),
        ("herdsman pool ev", ["evict"]),
        ("herdsman chaos ", ["kill-worker", "pause-worker"]),
        ("herdsman requ", []),
    ],
)
def test_bash_completes_commands_options_and_choices(words: str, offered: list[str]) -> None:
    number = str(len(words.split(" ")) - 1)
    assert completed("bash", COMP_WORDS=words, COMP_CWORD=number).split() == offered


def test_zsh_and_fish_complete_too() -> None:
    assert "events" in completed("zsh", _TYPER_COMPLETE_ARGS="herdsman ev")
    fish = completed("fish", _TYPER_COMPLETE_ARGS="herdsman ev", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert "events" in fish.split()


def test_completing_a_command_loads_none() -> None:
    """A person waits for it."""
    program = (
        "import sys; from herdsman.cli.main import COMMANDS, group\n"
        "import typer\n"
        "made = group(COMMANDS)(name='herdsman')\n"
        "print([each.value for each in made.shell_complete(typer.Context(made), 'do')],"
        " [name for name in sys.modules if name in ('herdsman.cli.up', 'herdsman.cli.doctor', 'sqlalchemy')])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['down', 'doctor'] []"


def test_what_is_installed_works_in_a_real_bash(tmp_path: Path) -> None:
    """Installed, sourced, and asked as the shell does it."""
    program = Path(sys.executable).parent / "herdsman"
    surroundings = {"HOME": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def bash(script: str) -> str:
        run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=surroundings)
        assert run.returncode == 0, run.stderr
        return run.stdout

    assert "bash completion installed" in bash("herdsman --install-completion; test $? = 0")
    assert "herdsman" in (tmp_path / ".bashrc").read_text()
    asked = (
        ". ~/.bash_completions/herdsman.sh; COMP_WORDS=(herdsman work) COMP_CWORD=1;"
        ' _herdsman_completion herdsman work; echo "${COMPREPLY[@]}"'
    )
    assert bash(asked).split() == ["workers", "worker"]
