"""`herdsman whatif`: what a policy would have cost, and how long jobs would have waited under it."""

from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from herdsman.cli.context import settings_here
from herdsman.cli.lazy import SERVER, needed
from herdsman.cli.output import Output, echo, print_json, step
from herdsman.cli.whatif_cycles import check_cycles
from herdsman.cli.whatif_options import (
    BootSpread,
    BootTime,
    Compare,
    Cycles,
    Days,
    Failing,
    Given,
    History,
    Html,
    OutputOption,
    Png,
    PolicyName,
    PoolOption,
    Price,
    Seed,
    Sweep,
    TargetWait,
    TraceFile,
)
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
    trace: TraceFile = None,
    history: History = False,
    cycles: Cycles = False,
    days: Days = 30,
    pool: PoolOption = DEFAULT_POOL,
    policy: PolicyName = None,
    compare: Compare = None,
    given: Given = None,
    sweep: Sweep = None,
    target_wait: TargetWait = None,
    price: Price = 0.0,
    boot_s: BootTime = None,
    boot_spread_s: BootSpread = 0.0,
    failing: Failing = None,
    seed: Seed = 0,
    png: Png = None,
    html: Html = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Replay arrivals and run times in virtual time through the real control loop's judgement."""
    if (trace is None) == (not history):
        raise InvalidRequest("say what to replay: either --trace FILE or --history, and not both")
    require_numbers(days=days, target_wait=target_wait, price=price)
    require_numbers(boot_s=boot_s, boot_spread_s=boot_spread_s, failing=failing)
    fixed = _fixed(given or [], target_wait)
    name, span, installed = PoolId(pool), timedelta(days=days), installed_here()
    if cycles:
        _require_alone(history=history, compare=compare, sweep=sweep, png=png, html=html)
        other = ruled(name, installed, fixed, policy)[0] if fixed or policy else None
        check_cycles(span, installed, output, pool=name, policy=other)
        return
    swept = combinations(sweep or [])
    require_place(png, html)
    demand, fitted = _demand(trace, name, span)
    boots = boots_of(fitted, boot_s, boot_spread_s, failing)
    made = setups(Asked(name, fixed, boots, price, seed, installed), policy, compare or [], swept)
    found = [_replayed(demand, setup, label) for label, setup in made.items()]
    _show(demand, found, next(iter(made.values())), output, png, html)


def _fixed(given: Sequence[str], target_wait: float | None) -> dict[str, str]:
    fixed = assignments(given, "--set")
    if target_wait is not None:
        fixed["TARGET_WAIT_SEC"] = str(target_wait)
    return fixed


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


def _demand(trace: Path | None, pool: PoolId, span: timedelta) -> tuple[Trace, Boots | None]:
    demand, fitted = (read_trace(trace), None) if trace else _history(pool, span)
    for said in demand.said:
        echo(f"note: {said}", err=True)
    return demand, fitted


def _history(pool: PoolId, span: timedelta) -> tuple[Trace, Boots | None]:
    settings = settings_here()
    with needed(SERVER.format("whatif --history")):
        from herdsman.cli.context import services_here  # noqa: PLC0415
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
