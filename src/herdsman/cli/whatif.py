"""`herdsman whatif`: what a policy would have cost, and how long jobs would have waited under it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from herdsman.cli.opening import database_packages, settings_here
from herdsman.cli.progress import step
from herdsman.cli.shown import Output, print_json
from herdsman.cli.whatif_table import print_table
from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL, PoolId
from herdsman.core.scaling.observation import ScalingPolicy
from herdsman.core.scaling.registry import OURS, chosen
from herdsman.settings import load_settings
from herdsman.settings.fleet import fleet_policy
from herdsman.sim.whatif.boots import Boots
from herdsman.sim.whatif.outcome import Outcome
from herdsman.sim.whatif.picture import write_html, write_png
from herdsman.sim.whatif.replay import Setup, replay
from herdsman.sim.whatif.sweep import advice, assignments, combinations, labelled
from herdsman.sim.whatif.trace import Trace, read_trace

BOOT_S = 90.0
"""Where nobody has given one, and none was ever timed."""


def whatif(
    trace: Annotated[
        Path | None, typer.Option(help="CSV with arrival_s,service_s[,class]; gzip is fine.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Replay the jobs of this database instead.")
    ] = False,
    days: Annotated[float, typer.Option(min=0.01, max=3650, help="How much of the history.")] = 30,
    pool: Annotated[str, typer.Option(help="Whose history, and under whose settings.")] = DEFAULT_POOL,
    policy: Annotated[
        str | None, typer.Option(help="The scaling policy; else that of your settings.")
    ] = None,
    compare: Annotated[
        list[str] | None, typer.Option(help="Another policy beside it; may be repeated.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A..B", help="Replay with each value, also A..B:STEP or A,B,C; may be repeated."
        ),
    ] = None,
    target_wait: Annotated[
        float | None, typer.Option(min=0.001, help="TARGET_WAIT_SEC: the wait to aim at, in seconds.")
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="What a worker costs an hour, in USD.")] = 0.0,
    boot_s: Annotated[float | None, typer.Option(min=0, help="How long a start takes, in seconds.")] = None,
    boot_spread_s: Annotated[float, typer.Option(min=0, help="How much that varies.")] = 0.0,
    failing: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of starts that fail.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same starts.")] = 0,
    png: Annotated[Path | None, typer.Option(help="Write cost against wait as a picture.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page that needs nothing else.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
) -> None:
    """Replay arrivals and run times in virtual time through the real control loop's judgement."""
    if (trace is None) == (not history):
        raise InvalidRequest("say what to replay: either --trace FILE or --history, and not both")
    fixed = assignments(given or [], "--set")
    if target_wait is not None:
        fixed["TARGET_WAIT_SEC"] = str(target_wait)
    demand, fitted = (read_trace(trace), None) if trace else _history(PoolId(pool), timedelta(days=days))
    for said in demand.said:
        typer.echo(f"note: {said}", err=True)
    boots = _boots(fitted, boot_s, boot_spread_s, failing)
    asked = Asked(PoolId(pool), fixed, boots, price, seed, _installed())
    setups = _setups(asked, policy, compare or [], combinations(sweep or []))
    found = [_replayed(demand, setup, name) for name, setup in setups.items()]
    _show(demand, found, next(iter(setups.values())), output, png, html)


@dataclass(frozen=True, slots=True)
class Asked:
    pool: PoolId
    fixed: Mapping[str, str]
    boots: Boots
    price: float
    seed: int
    installed: Mapping[str, ScalingPolicy]

    def setup(self, policy: str | None, swept: Mapping[str, str]) -> Setup:
        named = {} if policy is None else {"SCALING_POLICY": policy}
        asked = {**self.fixed, **swept, **named}
        # That spelling wins over every other, and one that names no setting is refused.
        settings = load_settings(given={f"HERDSMAN_{_bare(name)}": value for name, value in asked.items()})
        here = settings if self.pool == DEFAULT_POOL else settings.by_pool.get(self.pool, settings)
        rules = fleet_policy(here)
        chosen(rules.scaling, self.installed)
        return Setup(
            policy=rules,
            boots=self.boots,
            poll_s=settings.health.orchestrator_poll_sec,
            price=self.price,
            seed=self.seed,
            policies=self.installed,
        )


def _bare(name: str) -> str:
    return name.upper().removeprefix("HERDSMAN_")


def _setups(
    asked: Asked, policy: str | None, others: Sequence[str], swept: Sequence[Mapping[str, str]]
) -> dict[str, Setup]:
    """All are made before the first is replayed: a typing error should not cost minutes."""
    made: dict[str, Setup] = {}
    for name in (policy, *others):
        for each in swept:
            setup = asked.setup(name, each)
            made[labelled(setup.policy.scaling, each)] = setup
    return made


def _history(pool: PoolId, span: timedelta) -> tuple[Trace, Boots | None]:
    settings = settings_here()
    with database_packages():
        from herdsman.cli.services import services_here  # noqa: PLC0415
        from herdsman.sim.whatif.history import read_history  # noqa: PLC0415
    found = read_history(services_here(settings).database, pool, span)
    return found.trace, found.boots


def _boots(fitted: Boots | None, mean: float | None, spread: float, failing: float | None) -> Boots:
    """What was given counts; the rest is taken from the history."""
    fails = failing if failing is not None else (0.0 if fitted is None else fitted.failing)
    if mean is None and fitted is not None:
        return Boots(sample_s=fitted.sample_s, failing=fails)
    return Boots(mean_s=BOOT_S if mean is None else mean, spread_s=spread, failing=fails)


def _installed() -> Mapping[str, ScalingPolicy]:
    return {**OURS, **{each.name: each.load() for each in entry_points(group="herdsman.policies")}}


def _replayed(demand: Trace, setup: Setup, name: str) -> Outcome:
    with step(f"replaying {len(demand):,} jobs under {name}"):
        return replay(demand, setup, name)


def _show(
    demand: Trace,
    found: Sequence[Outcome],
    setup: Setup,
    output: Output,
    png: Path | None,
    html: Path | None,
) -> None:
    target = setup.policy.target_wait.total_seconds()
    advised = advice(found, target)
    title = f"{demand.name}: {len(demand):,} jobs"
    if png is not None:
        write_png(png, found, title)
    if html is not None:
        write_html(html, found, title, advised.said)
    if output is Output.JSON:
        print_json(
            {
                "trace": demand.name,
                "jobs": len(demand),
                "target_wait_s": target,
                "outcomes": [each.document() for each in found],
                "recommended": None if advised.best is None else advised.best.name,
                "why": advised.said,
            }
        )
        return
    print_table(demand, found, advised)
