"""`herdsman audit`: what the provider has and the database does not know of, and the other way round."""

from decimal import Decimal
from typing import Annotated

import typer

from herdsman.cli.context import services_here, settings_here
from herdsman.cli.output import Output, Yes, ask_first, echo, print_json
from herdsman.control.by_hand import Audited, compare, mend
from herdsman.core.differences import UNOWNED, Difference, Kind
from herdsman.core.instances import InstanceRef
from herdsman.wiring import open_control

HOURS_A_DAY, DAYS_A_MONTH = 24, 30


def audit(
    fix: Annotated[
        bool, typer.Option("--fix", help="Ask, end instances without a worker, and let the loop's rules act.")
    ] = False,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="With --fix: also end what another database may have started.")
    ] = False,
    yes: Yes = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Compare the provider with the database, both ways; exit 1 while they differ."""
    reconciler = open_control(settings_here(), services_here(), spawns=False).reconciler
    audited = compare(reconciler)
    if fix and audited.found and not audited.doubts:
        audited = mend(reconciler, _agreed(audited, foreign=foreign, yes=yes))
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
    """Of what does no work: strays and twins."""
    wasted = (each.cost_per_hour for each in found if each.kind in (Kind.STRAY, Kind.TWIN))
    hour = sum(wasted, Decimal(0))
    return {"hour": hour, "day": hour * HOURS_A_DAY, "month": hour * HOURS_A_DAY * DAYS_A_MONTH}


def _price(each: Difference) -> str:
    return f" ({each.cost_per_hour:.2f} USD an hour)" if each.cost_per_hour else ""
