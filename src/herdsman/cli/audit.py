"""`herdsman audit`: what the provider has and the database does not know of, and the other way round."""

from decimal import Decimal
from typing import Annotated

import typer

from herdsman.cli.opening import settings_here
from herdsman.cli.services import services_here
from herdsman.cli.shown import Output, echo, print_json
from herdsman.control.by_hand import Audited, compare, mend
from herdsman.core.differences import Difference, Kind
from herdsman.wiring import open_control

HOURS_A_DAY, DAYS_A_MONTH = 24, 30


def audit(
    fix: Annotated[bool, typer.Option("--fix", help="End strays, and let the loop's rules act.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Compare the provider with the database, both ways; exit 1 while they differ."""
    reconciler = open_control(settings_here(), services_here()).reconciler
    audited = mend(reconciler) if fix else compare(reconciler)
    if output is Output.JSON:
        print_json(_document(audited))
    else:
        _print(audited)
    if audited.doubts or audited.left:
        raise typer.Exit(1)


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
    echo(f"{len(audited.left)} differences left" if audited.left else "provider and database agree")


def _waste(found: tuple[Difference, ...]) -> dict[str, Decimal]:
    """Of what does no work: strays and twins."""
    wasted = (each.cost_per_hour for each in found if each.kind in (Kind.STRAY, Kind.TWIN))
    hour = sum(wasted, Decimal(0))
    return {"hour": hour, "day": hour * HOURS_A_DAY, "month": hour * HOURS_A_DAY * DAYS_A_MONTH}


def _price(each: Difference) -> str:
    return f" ({each.cost_per_hour:.2f} USD an hour)" if each.cost_per_hour else ""
