"""`herdsman whatif`: the same jobs, or the same recorded cycles, under another policy."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from herdsman.cli.errors import needed
from herdsman.cli.output import Output, OutputOption, echo, print_json, printed_json, step
from herdsman.cli.policy import installed_policies
from herdsman.cli.services import settings_here
from herdsman.errors import InvalidRequest
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling import ScalingPolicy, chosen
from herdsman.ids import DEFAULT_POOL, PoolId
from herdsman.settings import load_settings
from herdsman.settings.options import fleet_policy
from herdsman.whatif.machines import Boots
from herdsman.whatif.outcome import Outcome
from herdsman.whatif.picture import require_place, write_html, write_png
from herdsman.whatif.policy_sweep import Advice, advice, assignments, combinations, labelled, worthwhile
from herdsman.whatif.replay import Setup, replay
from herdsman.whatif.trace import Trace, read_trace

TraceFile = Annotated[
    Path | None, typer.Option(help="A CSV file with arrival_s,service_s[,class]; may be gzipped.")
]
History = Annotated[bool, typer.Option("--history", help="Replay the jobs of this database instead.")]
Cycles = Annotated[
    bool,
    typer.Option(
        "--cycles",
        help="With --history: decide each recorded cycle again, under another policy or setting if one is given.",
    ),
]
Days = Annotated[float, typer.Option(min=0.01, max=3650, help="How many days of history.")]
PoolOption = Annotated[str, typer.Option(help="The pool whose history and settings are used.")]
PolicyName = Annotated[str | None, typer.Option(help="The scaling policy; by default that of your settings.")]
Compare = Annotated[list[str] | None, typer.Option(help="Another policy to compare with; may be repeated.")]
Given = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting to change; may be repeated."),
]
Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=A..B", help="Replay with each value, also A..B:STEP or A,B,C; may be repeated."
    ),
]
TargetWait = Annotated[
    float | None, typer.Option(min=0.001, help="The wait to aim at, in seconds (TARGET_WAIT_SEC).")
]
Price = Annotated[float, typer.Option(min=0, help="Price of a worker per hour, in USD.")]
BootTime = Annotated[float | None, typer.Option(min=0, help="How long a worker takes to start, in seconds.")]
BootSpread = Annotated[float, typer.Option(min=0, help="Standard deviation of that, in seconds.")]
Failing = Annotated[float | None, typer.Option(min=0, max=1, help="The share of starts that fail, 0 to 1.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same start times.")]
Png = Annotated[Path | None, typer.Option(help="Write a plot of cost against wait as a PNG.")]
Html = Annotated[Path | None, typer.Option(help="Write it as a self-contained HTML page.")]


BOOT_S = 90.0
"""Where none was given, and the history has none."""
MOST = 1e9


@dataclass(frozen=True, slots=True)
class Base:
    """What all setups of one comparison share."""

    pool: PoolId
    fixed: Mapping[str, str]
    boots: Boots
    price: float
    seed: int
    installed: Mapping[str, ScalingPolicy]

    def setup(self, policy: str | None, swept: Mapping[str, str]) -> Setup:
        rules, poll_s = ruled(self.pool, self.installed, {**self.fixed, **swept}, policy)
        boots, price, seed = self.boots, self.price, self.seed
        return Setup(
            policy=rules, boots=boots, poll_s=poll_s, price=price, seed=seed, policies=self.installed
        )


def ruled(
    pool: PoolId, installed: Mapping[str, ScalingPolicy], fixed: Mapping[str, str], policy: str | None
) -> tuple[FleetPolicy, float]:
    """The local settings with what was given: the policy of a pool, and the seconds between two cycles."""
    if policy is not None:
        chosen(policy, installed)
    changed = {**fixed, **({} if policy is None else {"SCALING_POLICY": policy})}
    # With the prefix a setting wins over every other spelling, and an unknown one is rejected.
    settings = load_settings(
        given={f"HERDSMAN_{name.upper().removeprefix('HERDSMAN_')}": value for name, value in changed.items()}
    )
    rules = fleet_policy(settings if pool == DEFAULT_POOL else settings.by_pool.get(pool, settings))
    chosen(rules.scaling, installed)
    return rules, settings.health.orchestrator_poll_sec


def setups(
    base: Base, policy: str | None, others: Sequence[str], swept: Sequence[Mapping[str, str]]
) -> dict[str, Setup]:
    """All are built before the first is replayed: a typing error should not cost minutes."""
    made: dict[str, Setup] = {}
    for name in (policy, *others):
        for each in swept:
            setup = base.setup(name, each)
            made[labelled(setup.policy.scaling, each)] = setup
    return made


def boots_of(fitted: Boots | None, mean: float | None, spread: float, failing: float | None) -> Boots:
    """What was given wins; the rest is taken from the history."""
    fails = failing if failing is not None else (0.0 if fitted is None else fitted.failing)
    if mean is None and fitted is not None:
        return Boots(sample_s=fitted.sample_s, failing=fails)
    return Boots(mean_s=BOOT_S if mean is None else mean, spread_s=spread, failing=fails)


def require_numbers(**given: float | None) -> None:
    """A command line takes `nan` and `inf` as numbers, and they pass every limit."""
    for name, value in given.items():
        if value is not None and not (math.isfinite(value) and abs(value) <= MOST):
            option = f"--{name.replace('_', '-')}"
            raise InvalidRequest(f"{option} is {value}: give a number up to {MOST:,.0f}")


COLUMNS = ("GPU-HOURS", "COST", "P50", "P95", "P99", "IN TIME", "IN USE", "SPAWNS", "PEAK", "CAP HITS")

CLASS_COLUMNS = ("JOBS", "P50", "P95", "P99", "LONGEST", "IN TIME")
MOST_CLASSES = 12
MOST_BESIDE = 4
PAIRS = 4
"""So many differences of one cycle are printed."""


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
            echo(f"{each.name}: {each.unfinished:,} jobs were unfinished when the replay was stopped")
    _print_classes(found)
    if len(found) > 1:
        echo(advised.said)


def _print_classes(found: Sequence[Outcome]) -> None:
    """Wait times per class of jobs, where there are several."""
    if not any(each.by_class for each in found):
        return
    if len(found) > MOST_BESIDE:
        echo("waits per class are left out for so many replays; -o json has them")
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("CLASS", "POLICY"):
        table.add_column(heading, no_wrap=True)
    for heading in CLASS_COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for place in range(min(MOST_CLASSES, len(found[0].by_class))):
        name = found[0].by_class[place][0]
        for each in found:
            waits = dict(each.by_class)[name]
            seconds = (f"{each:.0f}s" for each in (waits.p50_s, waits.p95_s, waits.p99_s, waits.max_s))
            cells = (f"{waits.jobs:,}", *seconds, f"{waits.within_target:.1%}")
            table.add_row(escape(name) or "(none)", each.name, *cells)
    echo()
    Console(width=max(110, Console().width)).print(table)
    if (left := len(found[0].by_class) - MOST_CLASSES) > 0:
        echo(f"and {left:,} classes with fewer jobs; -o json has them all")


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
    if (trace is None) == (not history):
        raise InvalidRequest("nothing to replay: give either --trace FILE or --history")
    require_numbers(days=days, target_wait=target_wait, price=price)
    require_numbers(boot_s=boot_s, boot_spread_s=boot_spread_s, failing=failing)
    fixed = assignments(given or [], "--set")
    if target_wait is not None:
        fixed["TARGET_WAIT_SEC"] = str(target_wait)
    name, span, installed = PoolId(pool), timedelta(days=days), installed_policies()
    if cycles:
        if not history:
            raise InvalidRequest("--cycles is about the recorded cycles of this database: add --history")
        for option, value in {"--compare": compare, "--sweep": sweep, "--png": png, "--html": html}.items():
            if value:
                raise InvalidRequest(
                    f"{option} cannot be used with --cycles, which takes one policy at a time"
                )
        other = ruled(name, installed, fixed, policy)[0] if fixed or policy else None
        check_cycles(span, installed, output, pool=name, policy=other)
        return
    swept = combinations(sweep or [])
    require_place(png, html)
    demand, fitted = (read_trace(trace), None) if trace else _history(name, span)
    for note in demand.said:
        echo(f"note: {note}", err=True)
    boots = boots_of(fitted, boot_s, boot_spread_s, failing)
    made = setups(Base(name, fixed, boots, price, seed, installed), policy, compare or [], swept)
    found: list[Outcome] = []
    for label, setup in made.items():
        with step(f"replaying {len(demand):,} jobs under {label}"):
            found.append(replay(demand, setup, label))
    target = next(iter(made.values())).policy.target_wait.total_seconds()
    advised = advice(found, target)
    title = f"{demand.name}: {len(demand):,} jobs"
    if png is not None:
        write_png(png, found, title)
    if html is not None:
        write_html(html, found, title, advised.said)
    document = {
        "trace": demand.name,
        "jobs": len(demand),
        "target_wait_s": target,
        "outcomes": [each.document() for each in found],
        "recommended": None if advised.best is None else advised.best.name,
        "why": advised.said,
    }
    if not printed_json(output, document):
        print_table(demand, found, advised)


def _history(pool: PoolId, span: timedelta) -> tuple[Trace, Boots | None]:
    settings = settings_here()
    with needed("whatif --history"):
        from herdsman.cli.services import services_here  # noqa: PLC0415
        from herdsman.whatif.replay_cycles import read_history  # noqa: PLC0415
    with closing(services_here(settings).database) as database:
        found = read_history(database, pool, span)
    return found.trace, found.boots


def check_cycles(
    span: timedelta,
    installed: Mapping[str, ScalingPolicy],
    output: Output,
    *,
    pool: PoolId,
    policy: FleetPolicy | None,
) -> None:
    """Exits with 1 where a cycle would be decided differently under its own policy, or cannot be replayed."""
    settings = settings_here()
    with needed("whatif --history"):
        from herdsman.cli.services import services_here  # noqa: PLC0415
        from herdsman.fleet import history_sql  # noqa: PLC0415
        from herdsman.whatif.replay_cycles import ask_again, ask_under  # noqa: PLC0415
    with closing(services_here(settings).database) as database, step("replaying every recorded cycle"):
        found = history_sql.snapshots_since(database, database.read(lambda tx: tx.now()) - span)
        report = ask_again(found, installed) if policy is None else ask_under(found, installed, pool, policy)
    if not report.cycles and not report.left_out:
        raise InvalidRequest(
            f"no cycle of the last {span.total_seconds() / 86_400:g} days has its snapshot recorded:"
            " let the control loop run with REPLAY_DAYS above 0, and try again"
        )
    if policy is not None and not report.cycles:
        raise InvalidRequest(f"no cycle could be replayed; {report.why_left_out}")
    if output is Output.JSON:
        print_json(_cycles_document(report, policy))
    else:
        _print_cycles(report, policy)
    if policy is None and not report.same:
        raise typer.Exit(1)


def _print_cycles(report: Any, policy: FleetPolicy | None) -> None:
    for each in report.first:
        echo(f"cycle {each.cycle} at {each.at:%Y-%m-%d %H:%M:%S} UTC:")
        pairs = Counter((_words(was), _words(would)) for was, would in each.pairs)
        for (was, would), times in pairs.most_common(PAIRS):
            often = f" ({times} times)" if times > 1 else ""
            echo(f"  recorded: {was}{often}")
            echo(f"  {'now' if policy is None else policy.scaling}: {would}{often}")
        if len(pairs) > PAIRS:
            echo(f"  and {len(pairs) - PAIRS} more")
    if report.otherwise > len(report.first):
        echo(f"and {report.otherwise - len(report.first):,} more cycles")
    if report.left_out:
        echo(f"{report.left_out:,} cycles were skipped; the first: {report.why_left_out}")
    replayed = f"{report.cycles:,} cycles, {report.decisions:,} decisions"
    if policy is not None:
        kinds = sorted(set(report.recorded) | set(report.would))
        moved = "".join(f"; {kind} {report.recorded[kind]} -> {report.would[kind]}" for kind in kinds)
        echo(
            f"{report.cycles:,} cycles: {policy.scaling} would have decided {report.otherwise:,} differently{moved}"
        )
    elif report.otherwise:
        echo(f"{replayed}: {report.otherwise:,} cycles would be decided differently now, by the same policy")
    else:
        echo(f"{replayed}, all the same{' except those skipped' if report.left_out else ''}")


def _words(step: Mapping[str, Any] | None) -> str:
    if step is None:
        return "nothing"
    about = step.get("worker_id") or step.get("pool") or step.get("about") or step.get("name") or ""
    numbers = ", ".join(f"{name} {value}" for name, value in step["numbers"].items())
    text = f"{step['phase']}: {step['action']} {about}: {step['code']}, {step['why']}"
    return f"{text} ({numbers})" if numbers else text


def _cycles_document(report: Any, policy: FleetPolicy | None) -> dict[str, Any]:
    return {
        "policy": None if policy is None else policy.scaling,
        "cycles": report.cycles,
        "decisions": report.decisions,
        "otherwise": report.otherwise,
        "left_out": report.left_out,
        "why_left_out": report.why_left_out,
        "recorded": dict(report.recorded),
        "would": dict(report.would),
        "differences": [
            {
                "cycle": each.cycle,
                "at": each.at.isoformat(),
                "steps": [{"recorded": was, "would": would} for was, would in each.pairs],
            }
            for each in report.first
        ],
    }
