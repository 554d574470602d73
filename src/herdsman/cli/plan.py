"""`herdsman plan`: what would be done with such a fleet and such a queue. Nothing is looked at or changed."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Annotated

import typer

from herdsman.cli.context import settings_here
from herdsman.cli.output import Output, OutputOption, echo, print_json
from herdsman.cli.policy import lines
from herdsman.errors import InvalidRequest
from herdsman.fleet.actions import SpawnWorker
from herdsman.fleet.decide import Plan, compare, decide
from herdsman.fleet.model import FleetPolicy, Instance, InstanceRef, InstanceState
from herdsman.fleet.phases.scale import wanted_workers
from herdsman.fleet.recording import shadow_documents, step_document
from herdsman.fleet.scaling.observation import ScalingPolicy, Wanted
from herdsman.fleet.scaling.policies import OURS, require_installed
from herdsman.fleet.snapshot import ClaimedJob, PoolSnapshot, Snapshot, WorkerSnapshot
from herdsman.ids import DEFAULT_POOL, JobId, WorkerId
from herdsman.jobs.model import ClaimKey
from herdsman.settings.options import fleet_policy
from herdsman.states import WorkerState


def policies_here() -> Mapping[str, ScalingPolicy]:
    """Ours and those of plugins, by their names."""
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}


def plan(
    queued: Annotated[int, typer.Option(min=0, help="Jobs that wait.")] = 0,
    active: Annotated[int, typer.Option(min=0, help="Workers that are ready.")] = 0,
    spawning: Annotated[int, typer.Option(min=0, help="Workers that are starting.")] = 0,
    busy: Annotated[int, typer.Option(min=0, help="Active workers that hold a job.")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what a cycle would do with so many jobs and workers, and why."""
    if busy > active:
        raise InvalidRequest(f"--busy is {busy}, but only {active} workers are active")
    policy = fleet_policy(settings_here())
    installed = policies_here()
    require_installed(policy, installed)
    seen = replace(
        pretend(policy, queued=queued, active=active, spawning=spawning, busy=busy), policies=installed
    )
    decided, wanted = decide(seen), wanted_workers(seen.pools[0], seen)
    noted = shadow_documents(compare(seen, decided))
    if output is Output.JSON:
        print_json({**_document(decided, wanted), **({"shadow": noted} if noted else {})})
        return
    _print(decided, policy, wanted)
    for line in lines(noted):
        echo(line)


def pretend(policy: FleetPolicy, *, queued: int, active: int, spawning: int, busy: int) -> Snapshot:
    now = datetime.now(UTC)
    workers = [
        _worker(now, f"active-{number}", WorkerState.ACTIVE, held=number < busy) for number in range(active)
    ]
    workers += [
        _worker(now, f"spawning-{number}", WorkerState.SPAWNING, held=False) for number in range(spawning)
    ]
    return Snapshot(
        now=now,
        pools=(PoolSnapshot(id=DEFAULT_POOL, policy=policy, queued=queued),),
        workers=tuple(workers),
        instances=tuple(
            Instance(ref=InstanceRef(worker.id), name=worker.id, state=InstanceState.RUNNING)
            for worker in workers
        ),
    )


def _worker(now: datetime, name: str, state: WorkerState, *, held: bool) -> WorkerSnapshot:
    return WorkerSnapshot(
        id=WorkerId(name),
        pool=DEFAULT_POOL,
        state=state,
        created_at=now,
        entered_state_at=now,
        instance_name=name,
        instance_ref=InstanceRef(name),
        last_heartbeat=now if state is WorkerState.ACTIVE else None,
        idle_since=now,
        job=ClaimedJob(key=ClaimKey(JobId(name), 1), since=now) if held else None,
    )


def _document(decided: Plan, wanted: Wanted) -> dict[str, object]:
    return {
        "wanted": {"grow_to": wanted.grow_to, "keep": wanted.keep, **wanted.terms},
        "spawn": sum(1 for action in decided.actions if isinstance(action, SpawnWorker)),
        "steps": [step_document(step) for step in decided.steps],
    }


def _print(decided: Plan, policy: FleetPolicy, wanted: Wanted) -> None:
    if not decided.steps:
        terms = ", ".join(f"{name} {value}" for name, value in wanted.terms.items())
        limits = f"{policy.min_workers} to {policy.max_workers} workers"
        echo(f"nothing to do: policy {policy.scaling} wants {wanted.grow_to} of {limits} ({terms})")
    for step in decided.steps:
        why = step.action.why
        numbers = ", ".join(f"{name} {value}" for name, value in why.numbers.items())
        echo(f"{step.phase:<12} {type(step.action).__name__:<14} {why.code}: {why.text} ({numbers})")
