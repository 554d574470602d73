"""`herdsman cycle` and `leader`: the control loop by hand, and who runs it."""

from typing import Annotated

import typer

from herdsman.api.opening import push_cycle
from herdsman.cli.connection import connect
from herdsman.cli.context import services_here, settings_here
from herdsman.cli.output import Output, age, echo, print_json
from herdsman.cli.shadow import lines
from herdsman.client import control_calls
from herdsman.control.cycle import Cycle
from herdsman.control.services import Services
from herdsman.control.shadows import documents
from herdsman.settings import Settings
from herdsman.wiring import open_control, stored_logs

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


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


def leader(output: OutputOption = Output.TABLE) -> None:
    """Say which replica leads, since when, and under which epoch."""
    found = connect().send(control_calls.leader())
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
    elif found.since is None:
        echo("nobody has led yet; start one with: herdsman up, or herdsman cycle")
    else:
        verb = "leads" if found.leads else "led last"
        echo(f"{found.holder} {verb}, epoch {found.epoch}, since {age(found.since)} ago")


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
        for line in lines(documents(ran.shadow)):
            echo(line)
    echo(f"{summary['status']}")
