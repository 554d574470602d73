"""`herdsman cycle`, `audit`, `spawn-gpu` and `terminate-gpu`: the control loop by hand."""

from decimal import Decimal
from typing import Annotated

import typer

from herdsman.cli.context import services_here, settings_here
from herdsman.cli.output import Output, OutputOption, Yes, ask_first, echo, print_json
from herdsman.cli.policy import lines
from herdsman.cli.short_ids import pick
from herdsman.context import Services
from herdsman.fleet.manual import Audited, compare, repair, spawn_worker, terminate_worker
from herdsman.fleet.model import InstanceRef
from herdsman.fleet.phases.instances import UNOWNED, Difference, Kind
from herdsman.fleet.recording import Cycle, shadow_documents
from herdsman.fleet.snapshot_sql import read_workers
from herdsman.ids import DEFAULT_POOL, PoolId, WorkerId
from herdsman.server.replica import push_cycle
from herdsman.server.wiring import open_control, stored_logs
from herdsman.settings import Settings


def cycle(
    output: OutputOption = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show every step with its reasons.")] = False,
) -> None:
    """Look at the fleet once, do what it needs, and exit: 0 when all of it could be done."""
    settings = settings_here()
    services = services_here(settings)
    with stored_logs(settings, services.database):
        run_cycle(settings, services, json=as_json or output is Output.JSON, dry_run=dry_run, explain=explain)


def run_cycle(settings: Settings, services: Services, *, json: bool, dry_run: bool, explain: bool) -> None:
    control = open_control(settings, services, spawns=not dry_run)
    if dry_run:
        _show(control.reconciler.plan(), json=json, explain=True)
        return
    control.leadership.campaign()
    ran = control.reconciler.tick()
    push_cycle(settings, services, control)
    control.leadership.resign()
    _show(ran, json=json, explain=explain)
    if ran.epoch is not None and not ran.complete:
        echo(f"herdsman: the cycle is not complete: {ran.fault}", err=True)
        raise typer.Exit(1)


def _show(ran: Cycle, *, json: bool, explain: bool) -> None:
    if json:
        print_json({**ran.summary(), "steps": ran.steps()} if explain else ran.summary())
        return
    if ran.epoch is None and ran.skipped:
        echo(f"nothing was done: {ran.skipped}")
    for step in ran.steps():
        if explain or step["action"] != "Note":
            result = "" if step["done"] else f" [not done: {step['said']}]"
            echo(f"{step['phase']:<12} {step['action']:<15} {step['code']}: {step['why']}{result}")
    summary = ran.summary()
    if explain:
        for line in lines(shadow_documents(ran.shadow)):
            echo(line)
    echo(f"{summary['status']}")


HOURS_A_DAY, DAYS_A_MONTH = 24, 30


def audit(
    fix: Annotated[
        bool, typer.Option("--fix", help="Ask, end instances without a worker, and let the loop's rules act.")
    ] = False,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="With --fix: also end what another database may have started.")
    ] = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare the provider with the database, both ways; exit 1 while they differ."""
    reconciler = open_control(settings_here(), services_here(), spawns=False).reconciler
    audited = compare(reconciler)
    if fix and audited.found and not audited.doubts:
        audited = repair(reconciler, _agreed(audited, foreign=foreign, yes=yes))
    if output is Output.JSON:
        print_json(_document(audited))
    else:
        _print(audited)
    if audited.doubts or audited.left:
        raise typer.Exit(1)


def _agreed(audited: Audited, *, foreign: bool, yes: bool) -> set[InstanceRef]:
    """Those that a person has seen and wants to be ended."""
    kinds = UNOWNED if foreign else tuple(kind for kind in UNOWNED if kind is not Kind.FOREIGN)
    ended = [each for each in audited.found if each.kind in kinds and each.instance is not None]
    if ended and not yes:
        for each in ended:
            echo(f"{each.kind:<11} {each.instance}  {each.text}{_price(each)}", err=True)
    if ended:
        ask_first(f"End {'this instance' if len(ended) == 1 else f'these {len(ended)} instances'}?", yes=yes)
    return {each.instance for each in ended if each.instance is not None}


def _document(audited: Audited) -> dict[str, object]:
    return {
        "doubts": audited.doubts,
        "differences": audited.found,
        "left": audited.left,
        "done": audited.done.steps() if audited.done else [],
        "waste_usd": {span: float(amount) for span, amount in _waste(audited.found).items()},
    }


def _print(audited: Audited) -> None:
    if audited.doubts:
        echo(f"nothing was concluded and nothing done: {audited.doubts}")
        return
    for each in audited.found:
        echo(f"{each.kind:<11} {each.worker_id or '-'}  {each.instance or '-'}  {each.text}{_price(each)}")
    if any(each.cost_per_hour for each in audited.found):
        amounts = ", ".join(f"{amount:.2f} USD a {span}" for span, amount in _waste(audited.found).items())
        echo(f"wasted: {amounts}")
    if audited.done is not None and audited.done.skipped:
        echo(f"nothing was done: {audited.done.skipped}")
    for step in audited.done.steps() if audited.done else ():
        result = "done" if step["done"] else f"not done: {step['said']}"
        echo(f"{step['action']}  {step['code']}: {step['why']} [{result}]")
    if any(each.kind is Kind.FOREIGN for each in audited.left):
        echo("what another database started is left to it; audit --fix --foreign ends it after a question")
    echo(f"{len(audited.left)} differences left" if audited.left else "provider and database agree")


def _waste(found: tuple[Difference, ...]) -> dict[str, Decimal]:
    """Of what does no work: orphans and duplicates."""
    wasted = (each.cost_per_hour for each in found if each.kind in (Kind.ORPHAN, Kind.DUPLICATE))
    hour = sum(wasted, Decimal(0))
    return {"hour": hour, "day": hour * HOURS_A_DAY, "month": hour * HOURS_A_DAY * DAYS_A_MONTH}


def _price(each: Difference) -> str:
    return f" ({each.cost_per_hour:.2f} USD an hour)" if each.cost_per_hour else ""


def spawn_gpu(pool: Annotated[str, typer.Option(help="The pool that gets it.")] = DEFAULT_POOL) -> None:
    """Start one worker now, within all limits, and print its id and its instance."""
    echo(spawn_worker(open_control(settings_here(), services_here()).reconciler, PoolId(pool)))


def terminate_gpu(
    worker_id: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, or the end of it.")],
    force: Annotated[bool, typer.Option("--force", help="Even if it holds a job, which goes back.")] = False,
) -> None:
    """Let one worker go and ask for the end of its instance; the control loop sees to it that it is gone."""
    services = services_here()
    reconciler = open_control(settings_here(), services, spawns=False).reconciler
    known = [each.id for each in services.database.read(read_workers)]
    worker_id = pick("worker", worker_id, known)
    ran = terminate_worker(reconciler, WorkerId(worker_id), with_job=force)
    if reason := ran.summary()["skipped"]:
        echo(f"its instance was not looked at: {reason}")
    for step in ran.steps():
        result = "" if step["done"] else f" [not done: {step['said']}]"
        echo(f"{step['action']}: {step['why']}{result}")
    echo(f"{worker_id} is let go; cycles end its instance, and confirm that it is gone")
    if not ran.complete:
        raise typer.Exit(1)
