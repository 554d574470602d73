"""`herdsman whatif`: what a policy would have cost, and how long jobs would have waited under it."""

from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from herdsman.cli.opening import database_packages, settings_here
from herdsman.cli.progress import step
from herdsman.cli.shown import Output, print_json
from herdsman.cli.whatif_cycles import check_cycles
from herdsman.cli.whatif_setups import Asked, boots_of, installed_here, require_numbers, ruled, setups
from herdsman.cli.whatif_table import print_table
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL, PoolId
from herdsman.sim.whatif.boots import Boots
from herdsman.sim.whatif.outcome import Outcome
from herdsman.sim.whatif.picture import require_place, write_html, write_png
from herdsman.sim.whatif.replay import Setup, replay
from herdsman.sim.whatif.sweep import advice, assignments, combinations
from herdsman.sim.whatif.trace import Trace, read_trace


def whatif(
    trace: Annotated[
        Path | None, typer.Option(help="CSV with arrival_s,service_s[,class]; gzip is fine.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Replay the jobs of this database instead.")
    ] = False,
    cycles: Annotated[
        bool,
        typer.Option(
            "--cycles",
            help="With --history: ask again about each recorded cycle; under another policy or setting, if given.",
        ),
    ] = False,
    days: Annotated[float, typer.Option(min=0.01, max=3650, help="How much of the history.")] = 30,
    pool: Annotated[str, typer.Option(help="Whose history, and under whose settings.")] = DEFAULT_POOL,
    policy: Annotated[
        str | None, typer.Option(help="The scaling policy; else that of your settings.")
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option(help="Another policy beside it; may be repeated.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A..B", help="Replay with each value, also A..B:STEP or A,B,C; may be repeated."
        ),
    ] = None,
    target_wait: Annotated[
        float | None, typer.Option(min=0.001, help="TARGET_WAIT_SEC: the wait to aim at, in seconds.")
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="What a worker costs an hour, in USD.")] = 0.0,
    boot_s: Annotated[float | None, typer.Option(min=0, help="How long a start takes, in seconds.")] = None,
    boot_spread_s: Annotated[float, typer.Option(min=0, help="How much that varies.")] = 0.0,
    failing: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of starts that fail.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same starts.")] = 0,
    png: Annotated[Path | None, typer.Option(help="Write cost against wait as a picture.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page that needs nothing else.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Replay arrivals and run times in virtual time through the real control loop's judgement."""
    if (trace is None) == (not history):
        raise InvalidRequest("say what to replay: either --trace FILE or --history, and not both")
    require_numbers(
        days=days,
        target_wait=target_wait,
        price=price,
        boot_s=boot_s,
        boot_spread_s=boot_spread_s,
        failing=failing,
    )
    fixed = assignments(given or [], "--set")
    if target_wait is not None:
        fixed["TARGET_WAIT_SEC"] = str(target_wait)
    name, span, installed = PoolId(pool), timedelta(days=days), installed_here()
    if cycles:
        _require_alone(history=history, compare=compare, sweep=sweep, png=png, html=html)
        other = ruled(name, installed, fixed, policy)[0] if fixed or policy else None
        check_cycles(span, installed, output, pool=name, policy=other)
        return
    swept = combinations(sweep or [])
    require_place(png, html)
    demand, fitted = (read_trace(trace), None) if trace else _history(name, span)
    for said in demand.said:
        typer.echo(f"note: {said}", err=True)
    boots = boots_of(fitted, boot_s, boot_spread_s, failing)
    made = setups(Asked(name, fixed, boots, price, seed, installed), policy, compare or [], swept)
    found = [_replayed(demand, setup, label) for label, setup in made.items()]
    _show(demand, found, next(iter(made.values())), output, png, html)


def _require_alone(
    *,
    history: bool,
    compare: list[str] | None,
    sweep: list[str] | None,
    png: Path | None,
    html: Path | None,
) -> None:
    if not history:
        raise InvalidRequest("--cycles asks about the cycles of this database: give --history with it")
    others = {"--compare": compare, "--sweep": sweep, "--png": png, "--html": html}
    for option, value in others.items():
        if value:
            raise InvalidRequest(
                f"{option} does not go with --cycles, which compares what was decided with one policy at a time"
            )


def _history(pool: PoolId, span: timedelta) -> tuple[Trace, Boots | None]:
    settings = settings_here()
    with database_packages():
        from herdsman.cli.services import services_here  # noqa: PLC0415
        from herdsman.sim.whatif.history import read_history  # noqa: PLC0415
    with closing(services_here(settings).database) as database:
        found = read_history(database, pool, span)
    return found.trace, found.boots


def _replayed(demand: Trace, setup: Setup, name: str) -> Outcome:
    with step(f"replaying {len(demand):,} jobs under {name}"):
        return replay(demand, setup, name)


def _show(
    demand: Trace,
    found: Sequence[Outcome],
    setup: Setup,
    output: Output,
    png: Path | None,
    html: Path | None,
) -> None:
    target = setup.policy.target_wait.total_seconds()
    advised = advice(found, target)
    title = f"{demand.name}: {len(demand):,} jobs"
    if png is not None:
        write_png(png, found, title)
    if html is not None:
        write_html(html, found, title, advised.said)
    if output is Output.JSON:
        print_json(
            {
                "trace": demand.name,
                "jobs": len(demand),
                "target_wait_s": target,
                "outcomes": [each.document() for each in found],
                "recommended": None if advised.best is None else advised.best.name,
                "why": advised.said,
            }
        )
        return
    print_table(demand, found, advised)
