"""What the pages list is what the code has: nothing missing, nothing made up."""

import re
from collections.abc import Iterator
from inspect import isfunction
from typing import Any

import pytest
import typer.main

from herdsman import ids, json_text
from herdsman.cli.errors import EXIT_CODES
from herdsman.cli.main import app
from herdsman.context import Services
from herdsman.db import checks, paging, statements
from herdsman.errors import InvalidRequest
from herdsman.fleet.actions import Code
from herdsman.fleet.decide import PHASES
from herdsman.jobs import assign, protocol, sweep, worker_commands
from herdsman.jobs import commands as jobs_commands
from herdsman.jobs import rules as jobs_rules
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs import wire as jobs_wire
from herdsman.jobs.model import FailureClass, JobPolicy, NewJob
from herdsman.settings.model import CATALOGUE
from herdsman.states import JobStatus
from tests.docs.pages import ROOT, page, pages, table

CLI = page("docs/reference/cli.md")
LIFE = page("docs/life-of-a-job.md")
DATABASES = page("docs/databases.md")
LOOP = page("docs/control-loop.md")
CONTRIBUTING = page("CONTRIBUTING.md")


def every_command() -> Iterator[tuple[str, set[str]]]:
    """Each command with its options; `-h` and `--help` are said once for all. Hidden ones are old names."""
    todo = [("herdsman", typer.main.get_command(app))]
    while todo:
        name, command = todo.pop(0)
        yield name, {option for each in command.params for option in each.opts if option.startswith("-")}
        inner = _inside(command)
        todo[:0] = [(f"{name} {word}", inside) for word, inside in inner.items() if not inside.hidden]


def _inside(command: Any) -> dict[str, Any]:
    if not hasattr(command, "list_commands"):
        return {}
    context = typer.Context(command)
    found = {word: command.get_command(context, word) for word in command.list_commands(context)}
    return {word: inside for word, inside in found.items() if inside is not None}


@pytest.mark.parametrize(("name", "options"), list(every_command()))
def test_a_command_is_described_with_all_its_options(name: str, options: set[str]) -> None:
    described = {option for row in table(CLI.section(name)) for option in re.findall(r"--?[\w-]+", row[0])}
    assert described - {"--help", "-h"} == options


def test_no_command_is_described_that_does_not_exist() -> None:
    described = re.findall(r"^##+ (herdsman.*)$", CLI.text, re.MULTILINE)
    assert described == [name for name, _ in every_command()]


def test_the_exit_statuses_are_those_of_the_code() -> None:
    rows = [(row[1], int(row[0])) for row in table(CLI.section("Exit statuses")) if row[1]]
    assert rows == [(kind.__name__, code) for kind, code in EXIT_CODES]


def test_the_findings_of_the_control_loop_are_all_explained() -> None:
    assert [row[0] for row in table(LOOP.section("Findings"))] == list(Code)


def test_the_phases_of_a_cycle_are_explained_in_their_order() -> None:
    assert [row[0] for row in table(LOOP.section("Phases"))] == list(dict.fromkeys(name for name, _ in PHASES))


def test_the_states_of_a_job_are_all_explained() -> None:
    assert {row[0] for row in table(LIFE.section("States"))} == set(JobStatus)


def test_the_classes_of_failure_are_all_explained() -> None:
    assert sorted(row[0] for row in table(LIFE.section("Failures"))) == sorted(FailureClass)


OF_THE_SERVER = ("draft_of", "rules_for", "note_types", "end_overdue_leases")
"""Forms for many at a time, and steps of a claim or a sweep: the example has what they consist of."""


def test_the_example_uses_every_command() -> None:
    program = "".join(block.text for block in LIFE.blocks() if block.language == "python")
    given = [
        f"{module.__name__.rpartition('.')[2]}.{name}("
        for module in (assign, jobs_commands, worker_commands, sweep)
        for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", "") == module.__name__
        if next(iter(getattr(each, "__annotations__", {}).values()), None) is Services
        if isfunction(each) and name not in OF_THE_SERVER
    ]
    assert [each for each in given if each not in program] == []


def test_the_limits_are_those_of_the_code() -> None:
    policy = JobPolicy()
    said = {row[0].replace("`", ""): row[1] for row in table(LIFE.section("Limits"))}
    held = {
        "payload": policy.max_payload_bytes,
        "result, checkpoint": policy.max_result_bytes,
        "depth of a payload or result": json_text.MAX_DEPTH,
        "tags of a job": jobs_rules.MAX_TAGS,
        "priority": f"{ids.LOWEST} to {ids.HIGHEST}",
        "max_attempts of a job": f"1 to {jobs_rules.MAX_ATTEMPTS}",
        "delay, retry_base, retry_cap": jobs_rules.LONGEST_WAIT.days,
        "timeout": jobs_rules.LONGEST_RUN.days,
        "jobs in one submission": jobs_sql.LARGEST_BATCH,
        "workers in one claim": statements.MOST_LISTED,
        "jobs that one worker holds": protocol.MOST_AT_ONCE,
        "jobs on one page": paging.LARGEST_PAGE,
        "jobs in one requeue": jobs_wire.MOST_IN_BULK,
        "text of an error": worker_commands.LONGEST_ERROR,
        "note on progress": worker_commands.LONGEST_NOTE,
    }
    assert said.keys() == held.keys() | NAMES.keys()
    for what, limit in held.items():
        assert re.match(rf"{limit}\b", said[what]), f"{what}: {said[what]}, but the code has {limit}"


NAMES = {
    "job_id, pool": ("job_id", "pool"),
    "type, a tag": ("type", "tags"),
    "agent, idempotency_key": ("agent", "idempotency_key"),
}


@pytest.mark.parametrize(("row", "field"), [(row, field) for row, fields in NAMES.items() for field in fields])
def test_a_name_may_be_as_long_as_the_page_says_and_no_longer(row: str, field: str) -> None:
    said = {cells[0].replace("`", ""): cells[1] for cells in table(LIFE.section("Limits"))}
    longest = int(said[row].split()[0])
    jobs_rules.check(named(field, "x" * longest), JobPolicy())
    with pytest.raises(InvalidRequest, match=f"the limit is {longest}"):
        jobs_rules.check(named(field, "x" * (longest + 1)), JobPolicy())


def named(field: str, name: str) -> NewJob:
    wanted: dict[str, Any] = {"type": "demo", field: (name,) if field == "tags" else name}
    return NewJob(**wanted)


def test_the_oldest_versions_are_those_of_the_code() -> None:
    said = {row[0]: row[1] for row in table(DATABASES.section("Databases"))}
    assert said == {name: ".".join(map(str, oldest)) for name, oldest in checks.OLDEST.items()}


def test_the_version_of_sqlite_that_is_warned_about_is_that_of_the_code() -> None:
    safe = ".".join(map(str, checks.SAFE_SQLITE))
    assert f"SQLite older than {safe}" in " ".join(DATABASES.text.split())


def test_every_command_of_the_makefile_is_explained() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {row[0].removeprefix("make ") for row in table(CONTRIBUTING.section("Set up"))} == set(targets)


NOT_OURS = {"NO_COLOR"}
"""Variables that programs of all kinds look at."""


def test_settings_are_called_by_names_that_exist() -> None:
    """With a number behind it, in parentheses, the number is the default."""
    written_by_hand = [each for each in pages() if each.path.name != "settings.md"]
    for each in written_by_hand:
        for name, number in re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`(?: \((\d+)[ )])?", each.text):
            if name in Code.__members__ or name in NOT_OURS:
                continue
            known = name if name in CATALOGUE else name.removesuffix("_FILE")
            assert known in CATALOGUE, f"{each.name}: there is no setting {name}"
            if number:
                assert str(CATALOGUE[known].field.default) == number, f"{each.name}: {name} is not {number}"
