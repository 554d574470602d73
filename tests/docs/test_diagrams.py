"""The pictures of the architecture show what the code says."""

import tomllib
from collections.abc import Iterator
from enum import StrEnum

import pytest

from herdsman.states import MACHINES, AnyMachine
from tests.docs.pages import ROOT, page

ARCHITECTURE = page("ARCHITECTURE.md")


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.kind)
def test_the_diagram_of_a_machine_is_its_table(machine: AnyMachine) -> None:
    section = ARCHITECTURE.section(machine.kind)
    expected = f"```mermaid\n{diagram(machine)}\n```"
    assert expected in section, f"write this under the heading {machine.kind}:\n{expected}"


def test_the_layers_are_those_that_the_build_checks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    drawn = next(block.text for block in ARCHITECTURE.blocks() if block.text.startswith("cli"))
    assert [line.split("   ")[0] for line in drawn.splitlines()] == layers


def diagram(machine: AnyMachine) -> str:
    """In the order of the table, so that the same table always gives the same text."""
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in _lines(machine))])


def _lines(machine: AnyMachine) -> Iterator[str]:
    yield from (f"[*] --> {state}" for state in _ordered(machine, machine.initial))
    for here in machine.states:
        yield from (f"{here} --> {there}" for there in _ordered(machine, machine.moves[here]))
        yield from (f"{here} --> {there}: requeue" for there in _ordered(machine, machine.reopens.get(here)))
    yield from (f"{state} --> [*]" for state in _ordered(machine, machine.terminal))


def _ordered(machine: AnyMachine, some: frozenset[StrEnum] | None) -> list[StrEnum]:
    return [state for state in machine.states if state in (some or ())]
