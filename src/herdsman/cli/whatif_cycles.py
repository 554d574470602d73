"""`herdsman whatif --history --cycles`: the recorded cycles, asked again."""

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from typing import Any

import typer

from herdsman.cli.context import settings_here
from herdsman.cli.lazy import SERVER, needed
from herdsman.cli.output import Output, echo, print_json, step
from herdsman.errors import InvalidRequest
from herdsman.fleet.model import FleetPolicy
from herdsman.fleet.scaling.observation import ScalingPolicy
from herdsman.ids import PoolId

PAIRS = 4
"""So many differences of one cycle are printed."""


def check_cycles(
    span: timedelta,
    installed: Mapping[str, ScalingPolicy],
    output: Output,
    *,
    pool: PoolId,
    policy: FleetPolicy | None,
) -> None:
    """Exit status 1 where a cycle would be decided otherwise under its own policy, or cannot be asked."""
    settings = settings_here()
    with needed(SERVER.format("whatif --history")):
        from herdsman.cli.context import services_here  # noqa: PLC0415
        from herdsman.fleet import history_sql as sights  # noqa: PLC0415
        from herdsman.whatif.replay_cycles import ask_again, ask_under  # noqa: PLC0415
    with (
        closing(services_here(settings).database) as database,
        step("asking again about every recorded cycle"),
    ):
        found = sights.snapshots_since(database, database.read(lambda tx: tx.now()) - span)
        told = ask_again(found, installed) if policy is None else ask_under(found, installed, pool, policy)
    if not told.cycles and not told.left_out:
        raise InvalidRequest(_nothing(span))
    if policy is not None and not told.cycles:
        raise InvalidRequest(f"no cycle could be asked; {told.why_left_out}")
    if output is Output.JSON:
        print_json(_document(told, policy))
    else:
        _print(told, policy)
    if policy is None and not told.same:
        raise typer.Exit(1)


def _nothing(span: timedelta) -> str:
    days = span.total_seconds() / 86_400
    return (
        f"of no cycle within the last {days:g} days is it recorded what it saw:"
        " let the control loop run with REPLAY_DAYS above 0, and ask again"
    )


def _print(told: Any, policy: FleetPolicy | None) -> None:
    for each in told.first:
        echo(f"cycle {each.cycle} at {each.at:%Y-%m-%d %H:%M:%S} UTC:")
        pairs = Counter((_words(was), _words(would)) for was, would in each.pairs)
        for (was, would), times in pairs.most_common(PAIRS):
            often = f" ({times} times)" if times > 1 else ""
            echo(f"  recorded: {was}{often}")
            echo(f"  {'now' if policy is None else policy.scaling}: {would}{often}")
        if len(pairs) > PAIRS:
            echo(f"  and {len(pairs) - PAIRS} more")
    if told.otherwise > len(told.first):
        echo(f"and {told.otherwise - len(told.first):,} more cycles")
    if told.left_out:
        echo(f"{told.left_out:,} cycles were left out; the first: {told.why_left_out}")
    echo(_same(told) if policy is None else _beside(told, policy))


def _same(told: Any) -> str:
    asked = f"{told.cycles:,} cycles, {told.decisions:,} decisions"
    if told.otherwise:
        return f"{asked}: {told.otherwise:,} cycles would be decided otherwise now, by the same policy"
    return f"{asked}, all the same{' but what was left out' if told.left_out else ''}"


def _beside(told: Any, policy: FleetPolicy) -> str:
    kinds = sorted(set(told.recorded) | set(told.would))
    moved = [f"{kind} {told.recorded[kind]} -> {told.would[kind]}" for kind in kinds]
    return (
        f"{told.cycles:,} cycles as they were seen: under {policy.scaling}, {told.otherwise:,} would have been"
        f" decided otherwise{'; ' if moved else ''}{', '.join(moved)}"
    )


def _words(step: Mapping[str, Any] | None) -> str:
    if step is None:
        return "nothing"
    about = step.get("worker_id") or step.get("pool") or step.get("about") or step.get("name") or ""
    numbers = ", ".join(f"{name} {value}" for name, value in step["numbers"].items())
    told = f"{step['phase']}: {step['action']} {about}: {step['code']}, {step['why']}"
    return f"{told} ({numbers})" if numbers else told


def _document(told: Any, policy: FleetPolicy | None) -> dict[str, Any]:
    return {
        "policy": None if policy is None else policy.scaling,
        "cycles": told.cycles,
        "decisions": told.decisions,
        "otherwise": told.otherwise,
        "left_out": told.left_out,
        "why_left_out": told.why_left_out,
        "recorded": dict(told.recorded),
        "would": dict(told.would),
        "differences": [
            {
                "cycle": each.cycle,
                "at": each.at.isoformat(),
                "steps": [{"recorded": was, "would": would} for was, would in each.pairs],
            }
            for each in told.first
        ],
    }
