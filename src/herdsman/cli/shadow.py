"""`herdsman policy shadow`: where a second scaling policy would have done something else."""

from typing import Annotated, Any

import typer

from herdsman.cli.connection import connect
from herdsman.cli.output import Output, age, echo, print_json
from herdsman.client import dashboard_calls
from herdsman.wire.dashboard import MOST_HOURS
from herdsman.wire.shadow import ShadowOut, ShadowPoolOut, ShadowReportOut, SideOut


def shadow(
    hours: Annotated[int, typer.Option(min=1, max=MOST_HOURS, help="Look back so far.")] = 24,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Say how often the policy of SHADOW_SCALING_POLICY would have done something else, and what."""
    found = connect().send(dashboard_calls.shadow(hours))
    if output is Output.JSON:
        print_json(found.model_dump(mode="json"))
    else:
        _show(found)


def lines(noted: list[dict[str, Any]]) -> list[str]:
    """What a cycle says of its shadows, in the order in which it says it."""
    return [line for each in noted for line in _lines(ShadowOut.model_validate(each))]


def _show(found: ShadowReportOut) -> None:
    if found.since is None:
        echo(
            f"no cycle of the last {found.hours} hours asked a shadow;"
            " set SHADOW_SCALING_POLICY, for example to adaptive, and start herdsman again"
        )
        return
    failed = f", and in {found.failed} it raised" if found.failed else ""
    echo(
        f"since {age(found.since)} ago: {found.cycles} cycles looked at, in {found.differed} of them a shadow"
        f" would have done something else{failed}"
    )
    if found.truncated:
        echo("there were more cycles: only the newest were looked at")
    for pool in found.pools:
        echo(f"  {_pool(pool)}")
    if found.last:
        echo("where it differed, newest first:")
    for each in found.last:
        first, *rest = _lines(each)
        echo(f"  cycle {each.cycle}, {age(each.at)} ago: {first}")
        for line in rest:
            echo(f"  {line}")


def _pool(pool: ShadowPoolOut) -> str:
    failed = f", {pool.failed} raised" if pool.failed else ""
    return (
        f"pool {pool.pool}, shadow {pool.policy}: {pool.differed} of {pool.cycles} cycles differ{failed};"
        f" {pool.worker_hours_more:.1f} worker-hours more, {pool.worker_hours_less:.1f} less"
    )


def _lines(each: ShadowOut) -> list[str]:
    if each.error:
        return [f"pool {each.pool}: the shadow {each.policy} raised {each.error}"]
    if each.live is None or each.shadow is None:
        return [f"pool {each.pool}: the shadow {each.policy} would do the same"]
    return [f"pool {each.pool}", f"  {_side(each.live)}", f"  {_side(each.shadow)} [shadow: not done]"]


def _side(side: SideOut) -> str:
    return f"{side.policy:<10} to {side.workers} workers: {side.why}"
