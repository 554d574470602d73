"""`herdsman sim`: the real programs in a simulation, under every fault, from seeds that can be run again."""

import os
import re
from contextlib import AbstractContextManager
from typing import Annotated

import typer

from herdsman.cli.lazy import needed
from herdsman.cli.listing import LayoutOption, Listing, show
from herdsman.cli.output import Layout, Output, OutputOption
from herdsman.errors import InvalidRequest

sim = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Run the control plane in a simulation with faults.",
)

LAST_SEED = 2**63
MOST_SEEDS = 10_000_000


@sim.command("run")
def run(
    seed: Annotated[
        int | None, typer.Option(min=0, max=LAST_SEED, help="One seed: one order of events.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="All seeds from A to B.")] = None,
    faults: Annotated[
        str | None,
        typer.Option(help="all, none, names with commas between them, or -name; see herdsman sim faults."),
    ] = None,
    scenario: Annotated[
        str, typer.Option(help="The kind of simulation; see herdsman sim scenarios.")
    ] = "all",
    processes: Annotated[
        int | None,
        typer.Option("--processes", "-j", min=1, max=1024, help="How many at once; else one for each core."),
    ] = None,
    story: Annotated[
        int | None,
        typer.Option(
            min=0, max=1_000_000, help="How many of the last steps to print; 60 where something is wrong."
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run each seed again in another process, and compare.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End with the first seed that fails.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run seeds, check all that happened, and end with 1 where something must not have happened."""
    chosen = chosen_seeds(seed, seeds)
    with sim_packages():
        from herdsman.cli.sim_run import Asked, run_seeds  # noqa: PLC0415
        from herdsman.testing.simulation.faults import parse_faults  # noqa: PLC0415
        from herdsman.testing.simulation.run import STEPS  # noqa: PLC0415
        from herdsman.testing.simulation.scenarios import scenario_named  # noqa: PLC0415
    wanted = scenario_named(scenario).faults if faults is None else faults
    parse_faults(wanted)
    asked = Asked(
        seeds=chosen,
        scenario=scenario,
        faults=wanted.replace(" ", ""),
        steps=STEPS if story is None else story,
        told_always=story is not None,
        processes=processes or len(os.sched_getaffinity(0)),
        verify=verify,
        stop=stop,
    )
    raise typer.Exit(run_seeds(asked, output))


@sim.command("faults")
def list_faults(layout: LayoutOption = Layout.TABLE) -> None:
    """List the faults that can be injected."""
    with sim_packages():
        from herdsman.testing.simulation.faults import Fault  # noqa: PLC0415
    show(lambda: _listing("faults", {str(fault): fault.said for fault in Fault}), layout)


@sim.command("scenarios")
def list_scenarios(layout: LayoutOption = Layout.TABLE) -> None:
    """List the kinds of simulations."""
    with sim_packages():
        from herdsman.testing.simulation.scenarios import SCENARIOS  # noqa: PLC0415
    show(lambda: _listing("scenarios", {name: each.said for name, each in SCENARIOS.items()}), layout)


def chosen_seeds(seed: int | None, seeds: str | None) -> range:
    """`InvalidRequest` for what names no seeds."""
    if (seed is None) == (seeds is None):
        raise InvalidRequest("say what to run: either --seed N or --seeds A..B, and not both")
    if seed is not None:
        return range(seed, seed + 1)
    assert seeds is not None
    found = re.fullmatch(r"\s*(\d{1,19})\s*\.\.\s*(\d{1,19})\s*", seeds, re.ASCII)
    if found is None:
        raise InvalidRequest(
            f"--seeds is {seeds!r}: write two whole numbers from 0 to {LAST_SEED} with two dots between them,"
            " as in 0..1999"
        )
    return _from_to(int(found[1]), int(found[2]))


def _from_to(first: int, last: int) -> range:
    said = f"--seeds is {first}..{last}"
    if last < first:
        raise InvalidRequest(f"{said}, which ends before it begins: write {last}..{first}")
    if last > LAST_SEED:
        raise InvalidRequest(f"{said}: the last seed that there is, is {LAST_SEED}")
    if last - first >= MOST_SEEDS:
        raise InvalidRequest(
            f"{said}, which is {last - first + 1:,} seeds: ask for at most {MOST_SEEDS:,} at a time"
        )
    return range(first, last + 1)


def sim_packages() -> AbstractContextManager[None]:
    """Few who install Herdsman will simulate it."""
    return needed(
        "herdsman sim needs the package {}, which is not installed here: install herdsman[server,sim]"
    )


def _listing(what: str, said: dict[str, str]) -> Listing:
    document = {what: [{"name": name, "said": sentence} for name, sentence in said.items()]}
    return Listing(document=document, columns=("NAME", "WHAT"), rows=list(said.items()), empty="")
