"""`herdsman whatif`: the same jobs, or the same recorded cycles, under another policy."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import product
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
from herdsman.whatif.outcome import Advice, Outcome, advice, assignments, combinations, labelled, worthwhile
from herdsman.whatif.picture import require_place, write_html, write_png
from herdsman.whatif.replay import Setup, replay
from herdsman.whatif.trace import Trace, read_trace

BOOT_S = 90.0
"""Where none was given, and the history has none."""
MOST = 1e9
COLUMNS = ("GPU-HOURS", "COST", "P50", "P95", "P99", "IN TIME", "IN USE", "SPAWNS", "PEAK", "CAP HITS")
CLASS_COLUMNS = ("JOBS", "P50", "P95", "P99", "LONGEST", "IN TIME")
MOST_CLASSES = 12
MOST_BESIDE = 4
PAIRS = 4
"""So many differences of one cycle are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    trace: Annotated[Path | None, typer.Option(help="A CSV file with arrival_s,service_s[,class]; may be gzipped.")] = (
        None
    )
    history: Annotated[bool, typer.Option("--history", help="Replay the jobs of this database instead.")] = False
    cycles: Annotated[
        bool,
        typer.Option(
            "--cycles",
            help="With --history: decide each recorded cycle again, under another policy or setting if one is given.",
        ),
    ] = False
    days: Annotated[float, typer.Option(min=0.01, max=3650, help="How many days of history.")] = 30
    pool: Annotated[str, typer.Option(help="The pool whose history and settings are used.")] = DEFAULT_POOL
    policy: Annotated[str | None, typer.Option(help="The scaling policy; by default that of your settings.")] = None
    compare: Annotated[list[str] | None, typer.Option(help="Another policy to compare with; may be repeated.")] = None
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting to change; may be repeated.")
    ] = None
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=A..B", help="Replay with each value, also A..B:STEP or A,B,C; may be repeated."),
    ] = None
    target_wait: Annotated[
        float | None, typer.Option(min=0.001, help="The wait to aim at, in seconds (TARGET_WAIT_SEC).")
    ] = None
    price: Annotated[float, typer.Option(min=0, help="Price of a worker per hour, in USD.")] = 0.0
    boot_s: Annotated[float | None, typer.Option(min=0, help="How long a worker takes to start, in seconds.")] = None
    boot_spread_s: Annotated[float, typer.Option(min=0, help="Standard deviation of that, in seconds.")] = 0.0
    failing: Annotated[float | None, typer.Option(min=0, max=1, help="The share of starts that fail, 0 to 1.")] = None
    seed: Annotated[int, typer.Option(help="The same seed gives the same start times.")] = 0
    png: Annotated[Path | None, typer.Option(help="Write a plot of cost against wait as a PNG.")] = None
    html: Annotated[Path | None, typer.Option(help="Write it as a self-contained HTML page.")] = None

    def check(self) -> None:
        if (self.trace is None) == (not self.history):
            raise InvalidRequest("nothing to replay: give either --trace FILE or --history")
        # A command line takes `nan` and `inf` as numbers, and they pass every limit.
        for name in ("days", "target_wait", "price", "boot_s", "boot_spread_s", "failing"):
            value: float | None = getattr(self, name)
            if value is not None and not (math.isfinite(value) and abs(value) <= MOST):
                option = f"--{name.replace('_', '-')}"
                raise InvalidRequest(f"{option} is {value}: give a number up to {MOST:,.0f}")
        if self.cycles and not self.history:
            raise InvalidRequest("--cycles is about the recorded cycles of this database: add --history")
        for name in ("compare", "sweep", "png", "html") if self.cycles else ():
            if getattr(self, name):
                raise InvalidRequest(f"--{name} cannot be used with --cycles, which takes one policy at a time")

    @property
    def changed(self) -> dict[str, str]:
        target = {} if self.target_wait is None else {"TARGET_WAIT_SEC": str(self.target_wait)}
        return assignments(self.given or [], "--set") | target

    def boots(self, fitted: Boots | None) -> Boots:
        """What was given wins; the rest is taken from the history."""
        fails = self.failing if self.failing is not None else (0.0 if fitted is None else fitted.failing)
        if self.boot_s is None and fitted is not None:
            return Boots(sample_s=fitted.sample_s, failing=fails)
        mean = BOOT_S if self.boot_s is None else self.boot_s
        return Boots(mean_s=mean, spread_s=self.boot_spread_s, failing=fails)


def whatif(options: Options, output: OutputOption = Output.TABLE) -> None:
    options.check()
    installed = installed_policies()
    if options.cycles:
        check_cycles(options, installed, output)
        return
    swept = combinations(options.sweep or [])
    require_place(options.png, options.html)
    demand, fitted = (read_trace(options.trace), None) if options.trace else _history(options)
    for note in demand.said:
        echo(f"note: {note}", err=True)
    boots, made = options.boots(fitted), dict[str, Setup]()
    # All are built before the first is replayed: a typing error should not cost minutes.
    for policy, each in product((options.policy, *(options.compare or ())), swept):
        rules, poll_s = ruled(options.pool, installed, options.changed | each, policy)
        made[labelled(rules.scaling, each)] = Setup(
            policy=rules, boots=boots, poll_s=poll_s, price=options.price, seed=options.seed, policies=installed
        )
    found: list[Outcome] = []
    for label, setup in made.items():
        with step(f"replaying {len(demand):,} jobs under {label}"):
            found.append(replay(demand, setup, label))
    target = next(iter(made.values())).policy.target_wait.total_seconds()
    advised = advice(found, target)
    title = f"{demand.name}: {len(demand):,} jobs"
    if options.png is not None:
        write_png(options.png, found, title)
    if options.html is not None:
        write_html(options.html, found, title, advised.said)
    document = {
        "trace": demand.name,
        "jobs": len(demand),
        "target_wait_s": target,
        "outcomes": [each.document() for each in found],
        "recommended": None if advised.best is None else advised.best.name,
        "reason": advised.said,
    }
    if not printed_json(output, document):
        print_table(demand, found, advised)


def ruled(
    pool: str, installed: Mapping[str, ScalingPolicy], changed: Mapping[str, str], policy: str | None
) -> tuple[FleetPolicy, float]:
    """The local settings with what was given: the policy of a pool, and the seconds between two cycles."""
    if policy is not None:
        chosen(policy, installed)
        changed = {**changed, "SCALING_POLICY": policy}
    # With the prefix a setting wins over every other spelling, and an unknown one is rejected.
    settings = load_settings(
        given={f"HERDSMAN_{name.upper().removeprefix('HERDSMAN_')}": value for name, value in changed.items()}
    )
    rules = fleet_policy(settings.by_pool.get(pool, settings))
    chosen(rules.scaling, installed)
    return rules, settings.health.orchestrator_poll_sec


def _history(options: Options) -> tuple[Trace, Boots | None]:
    settings = settings_here()
    with needed("whatif --history"):
        from herdsman.cli.services import services_here  # noqa: PLC0415
        from herdsman.whatif.replay_cycles import read_history  # noqa: PLC0415
    with closing(services_here(settings).database) as database:
        return read_history(database, PoolId(options.pool), timedelta(days=options.days))


def print_table(demand: Trace, found: Sequence[Outcome], advised: Advice) -> None:
    """A star marks those of which no other is both cheaper and quicker."""
    span = demand.arrival_s[-1] / 3600
    echo(f"{demand.name}: {len(demand):,} jobs in {span:.1f} h, {demand.work_s / 3600:.1f} GPU-hours of work")
    good = worthwhile(found) if len(found) > 1 else ()
    rows = [
        (
            f"{each.name}{' *' if each in good else ''}",
            f"{each.gpu_hours:.1f}",
            f"{each.cost_usd:.2f}",
            *(f"{wait:.0f}s" for wait in (each.wait_p50_s, each.wait_p95_s, each.wait_p99_s)),
            f"{each.within_target:.1%}",
            f"{each.utilisation:.0%}",
            *map(str, (each.spawns, each.peak_workers, each.cap_hits)),
        )
        for each in found
    ]
    _print_rows(("POLICY",), COLUMNS, rows)
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
    rows: list[Sequence[str]] = []
    for name, _ in found[0].by_class[:MOST_CLASSES]:
        for each in found:
            waits = dict(each.by_class)[name]
            seconds = (f"{each:.0f}s" for each in (waits.p50_s, waits.p95_s, waits.p99_s, waits.max_s))
            cells = (f"{waits.jobs:,}", *seconds, f"{waits.within_target:.1%}")
            rows.append((escape(name) or "(none)", each.name, *cells))
    echo()
    _print_rows(("CLASS", "POLICY"), CLASS_COLUMNS, rows)
    if (left := len(found[0].by_class) - MOST_CLASSES) > 0:
        echo(f"and {left:,} classes with fewer jobs; -o json has them all")


def _print_rows(names: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in (*names, *numbers):
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(width=max(110, Console().width)).print(table)


def check_cycles(options: Options, installed: Mapping[str, ScalingPolicy], output: Output) -> None:
    """Exits with 1 where a cycle would be decided differently under its own policy, or cannot be replayed."""
    changed, span = options.changed, timedelta(days=options.days)
    policy = ruled(options.pool, installed, changed, options.policy)[0] if changed or options.policy else None
    settings = settings_here()
    with needed("whatif --history"):
        from herdsman.cli.services import services_here  # noqa: PLC0415
        from herdsman.fleet import history_sql  # noqa: PLC0415
        from herdsman.whatif.replay_cycles import ask_again, ask_under  # noqa: PLC0415
    with closing(services_here(settings).database) as database, step("replaying every recorded cycle"):
        found = history_sql.snapshots_since(database, database.read(lambda tx: tx.now()) - span)
        report = (
            ask_again(found, installed) if policy is None else ask_under(found, installed, PoolId(options.pool), policy)
        )
    if not report.cycles and not report.left_out:
        raise InvalidRequest(
            f"no cycle of the last {options.days:g} days has its snapshot recorded:"
            " let the control loop run with REPLAY_DAYS above 0, and try again"
        )
    if policy is not None and not report.cycles:
        raise InvalidRequest(f"no cycle could be replayed; {report.why_left_out}")
    if output is Output.JSON:
        differences = [
            {
                "cycle": each.cycle,
                "at": each.at.isoformat(),
                "steps": [{"recorded": was, "would": would} for was, would in each.pairs],
            }
            for each in report.first
        ]
        document = {"policy": None if policy is None else policy.scaling, **asdict(report)}
        print_json({name: value for name, value in document.items() if name != "first"} | {"differences": differences})
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
        echo(f"{report.cycles:,} cycles: {policy.scaling} would have decided {report.otherwise:,} differently{moved}")
    elif report.otherwise:
        echo(f"{replayed}: {report.otherwise:,} cycles would be decided differently now, by the same policy")
    else:
        echo(f"{replayed}, all the same{' except those skipped' if report.left_out else ''}")


def _words(step: Mapping[str, Any] | None) -> str:
    if step is None:
        return "nothing"
    about = step.get("worker_id") or step.get("pool") or step.get("about") or step.get("name") or ""
    numbers = ", ".join(f"{name} {value}" for name, value in step["numbers"].items())
    text = f"{step['phase']}: {step['action']} {about}: {step['code']}, {step['reason']}"
    return f"{text} ({numbers})" if numbers else text
