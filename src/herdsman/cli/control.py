"""`herdsman plan`, `cycle`, `audit`, `spawn-gpu` and `terminate-gpu`: the control loop run manually."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, cast

import typer

from herdsman.cli.connect import pick
from herdsman.cli.holds import print_cycle
from herdsman.cli.output import DryRun, Output, OutputOption, Yes, ask_first, echo, print_json
from herdsman.cli.policy import installed_policies, print_shadows
from herdsman.cli.services import services_here, settings_here
from herdsman.context import Services
from herdsman.errors import InvalidRequest
from herdsman.fleet.actions import SpawnWorker
from herdsman.fleet.decide import compare as compare_shadows
from herdsman.fleet.decide import decide
from herdsman.fleet.model import Instance, InstanceRef, InstanceStatus
from herdsman.fleet.phases.instances import UNOWNED, Difference, Kind
from herdsman.fleet.phases.scale import wanted_workers
from herdsman.fleet.reconcile import Audited, compare, repair, spawn_worker, terminate_worker
from herdsman.fleet.recording import Cycle, shadow_documents, step_document
from herdsman.fleet.scaling import require_installed
from herdsman.fleet.snapshot import ClaimedJob, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.fleet.snapshot_sql import read_workers
from herdsman.ids import DEFAULT_POOL, JobId, PoolId, WorkerId
from herdsman.jobs.model import ClaimKey
from herdsman.server.replica import push_cycle
from herdsman.server.wiring import open_control, stored_logs
from herdsman.settings import Settings
from herdsman.settings.options import fleet_policy
from herdsman.states import WorkerStatus

HOURS_A_DAY, DAYS_A_MONTH = 24, 30


def plan(
    queued: Annotated[int, typer.Option(min=0, help="Jobs in the queue.")] = 0,
    active: Annotated[int, typer.Option(min=0, help="Workers that are ready.")] = 0,
    spawning: Annotated[int, typer.Option(min=0, help="Workers that are starting.")] = 0,
    busy: Annotated[int, typer.Option(min=0, help="Active workers that run a job.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    if busy > active:
        raise InvalidRequest(f"--busy is {busy}, but --active is only {active}")
    policy, installed = fleet_policy(settings_here()), installed_policies()
    require_installed(policy, installed)
    statuses = [WorkerStatus.ACTIVE] * active + [WorkerStatus.SPAWNING] * spawning
    # A fleet of workers in these states, of which the first `busy` run a job.
    now = datetime.now(UTC)
    workers = tuple(
        WorkerSnapshot(
            id=WorkerId(name),
            pool=DEFAULT_POOL,
            status=status,
            created_at=now,
            entered_state_at=now,
            instance_name=name,
            instance_ref=InstanceRef(name),
            last_heartbeat=now if status is WorkerStatus.ACTIVE else None,
            idle_since=now,
            job=ClaimedJob(key=ClaimKey(JobId(name), 1), since=now) if number < busy else None,
        )
        for number, status in enumerate(statuses)
        for name in (f"{status.value}-{number}",)
    )
    snapshot = Snapshot(
        now=now,
        pools=(PoolSnapshot(id=DEFAULT_POOL, policy=policy, queued=queued),),
        workers=workers,
        instances=tuple(
            Instance(ref=InstanceRef(each.id), name=each.id, status=InstanceStatus.RUNNING) for each in workers
        ),
        policies=installed,
    )
    decided, wanted = decide(snapshot), wanted_workers(snapshot.pools[0], snapshot)
    noted = shadow_documents(compare_shadows(snapshot, decided))
    if output is Output.JSON:
        document = {
            "wanted": {"grow_to": wanted.grow_to, "keep": wanted.keep, **wanted.terms},
            "spawn": sum(1 for action in decided.actions if isinstance(action, SpawnWorker)),
            "steps": [step_document(step) for step in decided.steps],
        }
        print_json({**document, **({"shadow": noted} if noted else {})})
        return
    if not decided.steps:
        limits = f"{policy.min_workers} to {policy.max_workers} workers"
        echo(f"nothing to do: policy {policy.scaling} wants {wanted.grow_to} of {limits} ({_terms(wanted.terms)})")
    for step in decided.steps:
        reason = step.action.reason
        action = type(step.action).__name__
        echo(f"{step.phase:<12} {action:<14} {reason.code}: {reason.text} ({_terms(reason.numbers)})")
    print_shadows(noted)


def _terms(numbers: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def cycle(
    output: OutputOption = Output.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    dry_run: DryRun = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show every step with its reasons.")] = False,
) -> None:
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
    summary = ran.summary()
    if json:
        print_json({**summary, "steps": ran.steps()} if explain else summary)
        return
    status = cast("Mapping[str, object]", summary["status"])
    print_cycle(None if ran.epoch is not None else ran.skipped, ran.steps(), status, notes=explain)
    if explain:
        print_shadows(shadow_documents(ran.shadow))


def audit(
    fix: Annotated[
        bool, typer.Option("--fix", help="Ask, then terminate instances without a worker and repair the rest.")
    ] = False,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="With --fix: also terminate those that another database may own.")
    ] = False,
    yes: Yes = False,
    output: OutputOption = Output.TABLE,
) -> None:
    reconciler = open_control(settings_here(), services_here(), spawns=False).reconciler
    audited = compare(reconciler)
    if fix and audited.found and not audited.doubts:
        audited = repair(reconciler, _confirmed(audited, foreign=foreign, yes=yes))
    # Of what does no work: orphans and duplicates.
    wasted = (each.cost_per_hour for each in audited.found if each.kind in (Kind.ORPHAN, Kind.DUPLICATE))
    hour = sum(wasted, Decimal(0))
    waste = {"hour": hour, "day": hour * HOURS_A_DAY, "month": hour * HOURS_A_DAY * DAYS_A_MONTH}
    if output is Output.JSON:
        print_json(
            {
                "doubts": audited.doubts,
                "differences": audited.found,
                "left": audited.left,
                "done": audited.done.steps() if audited.done else [],
                "waste_usd": {span: float(amount) for span, amount in waste.items()},
            }
        )
    else:
        _print(audited, waste)
    if audited.doubts or audited.left:
        raise typer.Exit(1)


def _confirmed(audited: Audited, *, foreign: bool, yes: bool) -> set[InstanceRef]:
    """The instances that a person was shown and agrees to terminate."""
    kinds = UNOWNED if foreign else tuple(kind for kind in UNOWNED if kind is not Kind.FOREIGN)
    ended = [each for each in audited.found if each.kind in kinds and each.instance is not None]
    if ended and not yes:
        for each in ended:
            echo(f"{each.kind:<11} {each.instance}  {each.text}{_price(each)}", err=True)
    if ended:
        which = "this instance" if len(ended) == 1 else f"these {len(ended)} instances"
        ask_first(f"Terminate {which}?", yes=yes)
    return {each.instance for each in ended if each.instance is not None}


def _print(audited: Audited, waste: dict[str, Decimal]) -> None:
    if audited.doubts:
        echo(f"nothing was compared and nothing was done: {audited.doubts}")
        return
    for each in audited.found:
        echo(f"{each.kind:<11} {each.worker_id or '-'}  {each.instance or '-'}  {each.text}{_price(each)}")
    if any(each.cost_per_hour for each in audited.found):
        echo(f"wasted: {', '.join(f'{amount:.2f} USD a {span}' for span, amount in waste.items())}")
    if audited.done is not None and audited.done.skipped:
        echo(f"nothing was done: {audited.done.skipped}")
    for step in audited.done.steps() if audited.done else ():
        result = "done" if step["done"] else f"not done: {step['said']}"
        echo(f"{step['action']}  {step['code']}: {step['reason']} [{result}]")
    if any(each.kind is Kind.FOREIGN for each in audited.left):
        echo("instances of another database are left alone; audit --fix --foreign terminates them after a question")
    echo(f"{len(audited.left)} differences left" if audited.left else "provider and database agree")


def _price(each: Difference) -> str:
    return f" ({each.cost_per_hour:.2f} USD an hour)" if each.cost_per_hour else ""


def spawn_gpu(pool: Annotated[str, typer.Option(help="The pool of the worker.")] = DEFAULT_POOL) -> None:
    echo(spawn_worker(open_control(settings_here(), services_here()).reconciler, PoolId(pool)))


def terminate_gpu(
    worker_id: Annotated[str, typer.Argument(metavar="WORKER", help="The worker's id, or the end of it.")],
    force: Annotated[
        bool, typer.Option("--force", help="Even if it runs a job, which goes back to the queue.")
    ] = False,
) -> None:
    services = services_here()
    reconciler = open_control(settings_here(), services, spawns=False).reconciler
    worker_id = pick("worker", worker_id, [each.id for each in services.database.read(read_workers)])
    ran = terminate_worker(reconciler, WorkerId(worker_id), with_job=force)
    if reason := ran.summary()["skipped"]:
        echo(f"its instance was not terminated yet: {reason}")
    for step in ran.steps():
        result = "" if step["done"] else f" [not done: {step['said']}]"
        echo(f"{step['action']}: {step['reason']}{result}")
    echo(f"{worker_id} is terminating; the control loop confirms when its instance is gone")
    if not ran.complete:
        raise typer.Exit(1)
