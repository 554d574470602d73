"""`herdsman whatif`: what another policy would have made of the same jobs."""

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from herdsman.cli.context import settings_here
from herdsman.cli.lazy import SERVER, needed
from herdsman.cli.output import Output, OutputOption, echo, print_json, step
from herdsman.cli.whatif_cycles import check_cycles
from herdsman.errors import InvalidRequest
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling.observation import ScalingPolicy
from herdsman.fleet.scaling.policies import OURS, chosen
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.settings import load_settings
from herdsman.settings.options import fleet_policy
from herdsman.whatif.machines import Boots
from herdsman.whatif.outcome import Outcome, Waits
from herdsman.whatif.picture import require_place, write_html, write_png
from herdsman.whatif.replay import Setup, replay
from herdsman.whatif.sweep import Advice, advice, assignments, combinations, labelled, worthwhile
from herdsman.whatif.trace import Trace, read_trace

TraceFile = Annotated[Path | None, typer.Option(help="CSV with arrival_s,service_s[,class]; gzip is fine.")]
History = Annotated[bool, typer.Option("--history", help="Replay the jobs of this database instead.")]
Cycles = Annotated[
    bool,
    typer.Option(
        "--cycles",
        help="With --history: ask again about each recorded cycle; under another policy or setting, if given.",
    ),
]
Days = Annotated[float, typer.Option(min=0.01, max=3650, help="How much of the history.")]
PoolOption = Annotated[str, typer.Option(help="Whose history, and under whose settings.")]
PolicyName = Annotated[str | None, typer.Option(help="The scaling policy; else that of your settings.")]
Compare = Annotated[list[str] | None, typer.Option(help="Another policy beside it; may be repeated.")]
Given = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A..B", help="Replay with each value, also A..B:STEP or A,B,C; may be repeated."
    ),
]
TargetWait = Annotated[
    float | None, typer.Option(min=0.001, help="TARGET_WAIT_SEC: the wait to aim at, in seconds.")
]
Price = Annotated[float, typer.Option(min=0, help="What a worker costs an hour, in USD.")]
BootTime = Annotated[float | None, typer.Option(min=0, help="How long a start takes, in seconds.")]
BootSpread = Annotated[float, typer.Option(min=0, help="How much that varies.")]
Failing = Annotated[float | None, typer.Option(min=0, max=1, help="The share of starts that fail.")]
Seed = Annotated[int, typer.Option(help="The same seed draws the same starts.")]
Png = Annotated[Path | None, typer.Option(help="Write cost against wait as a picture.")]
Html = Annotated[Path | None, typer.Option(help="Write it as a page that needs nothing else.")]


BOOT_S = 90.0
"""Where nobody has given one, and none was ever timed."""
MOST = 1e9


@dataclass(frozen=True, slots=True)
class Asked:
    pool: PoolId
    fixed: Mapping[str, str]
    boots: Boots
    price: float
    seed: int
    installed: Mapping[str, ScalingPolicy]

    def setup(self, policy: str | None, swept: Mapping[str, str]) -> Setup:
        rules, poll_s = ruled(self.pool, self.installed, {**self.fixed, **swept}, policy)
        return Setup(
            policy=rules,
            boots=self.boots,
            poll_s=poll_s,
            price=self.price,
            seed=self.seed,
            policies=self.installed,
        )


def ruled(
    pool: PoolId, installed: Mapping[str, ScalingPolicy], fixed: Mapping[str, str], policy: str | None
) -> tuple[FleetPolicy, float]:
    """The settings of here with what was given: the rules of a pool, and the seconds between two cycles."""
    if policy is not None:
        chosen(policy, installed)
    asked = {**fixed, **({} if policy is None else {"SCALING_POLICY": policy})}
    # That spelling wins over every other, and one that names no setting is refused.
    settings = load_settings(given={f"HERDSMAN_{_bare(name)}": value for name, value in asked.items()})
    rules = fleet_policy(settings if pool == DEFAULT_POOL else settings.by_pool.get(pool, settings))
    chosen(rules.scaling, installed)
    return rules, settings.health.orchestrator_poll_sec


def setups(
    asked: Asked, policy: str | None, others: Sequence[str], swept: Sequence[Mapping[str, str]]
) -> dict[str, Setup]:
    """All are made before the first is replayed: a typing error should not cost minutes."""
    made: dict[str, Setup] = {}
    for name in (policy, *others):
        for each in swept:
            setup = asked.setup(name, each)
            made[labelled(setup.policy.scaling, each)] = setup
    return made


def boots_of(fitted: Boots | None, mean: float | None, spread: float, failing: float | None) -> Boots:
    """What was given counts; the rest is taken from the history."""
    fails = failing if failing is not None else (0.0 if fitted is None else fitted.failing)
    if mean is None and fitted is not None:
        return Boots(sample_s=fitted.sample_s, failing=fails)
    return Boots(mean_s=BOOT_S if mean is None else mean, spread_s=spread, failing=fails)


def installed_here() -> Mapping[str, ScalingPolicy]:
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}


def require_numbers(**given: float | None) -> None:
    """`nan` and `inf` are numbers to a command line, and pass every limit."""
    for name, value in given.items():
        if value is not None and not (math.isfinite(value) and abs(value) <= MOST):
            option = f"--{name.replace('_', '-')}"
            raise InvalidRequest(f"{option} is {value}: give a number up to {MOST:,.0f}")


def _bare(name: str) -> str:
    return name.upper().removeprefix("HERDSMAN_")


COLUMNS = ("GPU-HOURS", "COST", "P50", "P95", "P99", "IN TIME", "IN USE", "SPAWNS", "PEAK", "CAP HITS")

CLASS_COLUMNS = ("JOBS", "P50", "P95", "P99", "LONGEST", "IN TIME")
MOST_CLASSES = 12
MOST_BESIDE = 4


def print_table(demand: Trace, found: Sequence[Outcome], advised: Advice) -> None:
    """A star marks those of which no other is both cheaper and quicker."""
    span = demand.arrival_s[-1] / 3600
    echo(f"{demand.name}: {len(demand):,} jobs in {span:.1f} h, {demand.work_s / 3600:.1f} GPU-hours of work")
    table = Table(box=None, pad_edge=False)
    table.add_column("POLICY", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    good = worthwhile(found)
    for each in found:
        table.add_row(f"{each.name}{' *' if each in good and len(found) > 1 else ''}", *_cells(each))
    Console(width=max(110, Console().width)).print(table)
    for each in found:
        if each.unfinished:
            echo(f"{each.name}: {each.unfinished:,} jobs had not ended when the replay was given up")
    _print_classes(found)
    if len(found) > 1:
        echo(advised.said)


def _print_classes(found: Sequence[Outcome]) -> None:
    """Waits of each class of jobs, where there are several."""
    if not any(each.by_class for each in found):
        return
    if len(found) > MOST_BESIDE:
        echo("waits of each class of jobs are left out among so many replays; -o json has them")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("CLASS", "POLICY"):
        table.add_column(heading, no_wrap=True)
    for heading in CLASS_COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for place in range(min(MOST_CLASSES, len(found[0].by_class))):
        name = found[0].by_class[place][0]
        for each in found:
            table.add_row(escape(name) or "(none)", each.name, *_waits(dict(each.by_class)[name]))
    echo()
    Console(width=max(110, Console().width)).print(table)
    if (left := len(found[0].by_class) - MOST_CLASSES) > 0:
        echo(f"and {left:,} classes with fewer jobs; -o json has them all")


def _waits(waits: Waits) -> tuple[str, ...]:
    seconds = (waits.p50_s, waits.p95_s, waits.p99_s, waits.max_s)
    return (f"{waits.jobs:,}", *(f"{each:.0f}s" for each in seconds), f"{waits.within_target:.1%}")


def _cells(each: Outcome) -> tuple[str, ...]:
    return (
        f"{each.gpu_hours:.1f}",
        f"{each.cost_usd:.2f}",
        f"{each.wait_p50_s:.0f}s",
        f"{each.wait_p95_s:.0f}s",
        f"{each.wait_p99_s:.0f}s",
        f"{each.within_target:.1%}",
        f"{each.utilisation:.0%}",
        str(each.spawns),
        str(each.peak_workers),
        str(each.cap_hits),
    )


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
        from herdsman.whatif.recorded_trace import read_history  # noqa: PLC0415
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
