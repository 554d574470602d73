"""One seed: a world is made, troubled, left alone, and looked at."""

import traceback
from dataclasses import dataclass, replace
from random import Random

from herdsman.core.states import JOB
from herdsman.sim.checks import violations
from herdsman.sim.world.database import WorldDatabase
from herdsman.sim.world.faults import Fault, drawn
from herdsman.sim.world.leftovers import at_rest
from herdsman.sim.world.scenarios import EVERYTHING, SCENARIOS, Scenario
from herdsman.sim.world.scheduler import Scheduler
from herdsman.sim.world.site import Site
from herdsman.sim.world.telling import history_of
from herdsman.sim.world.world import World

TROUBLE_S = (40.0, 80.0)
PATIENCE_S = 700.0
"""So long after the last fault everything has come to its end, whatever happened."""
LOOK_S = 10.0
AWAKE_S = 30.0
"""Who was stopped has found out by then what became of its job."""
HOLDERS = (0, 0, 0, 2, 4)
"""Programs that lease GPUs."""
BOOTSTRAPPED = 0.5
"""The share of worlds whose machines are given a token that is good once."""
STREAMED = 0.5
"""The share of worlds that have a Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    seed: int
    hash: str
    violations: tuple[str, ...]
    notes: dict[str, int]
    story: tuple[str, ...]
    """The last steps."""
    jobs: int
    turns: int
    lasted_s: float


def run_seed(
    seed: int,
    allowed: frozenset[Fault],
    database: WorldDatabase,
    tail: int = 60,
    scenario: Scenario = SCENARIOS[EVERYTHING],
) -> Ran:
    site = _site(seed, allowed, database, scenario)
    world = site.world
    database.enter(world)
    site.start()
    world.scheduler.run(world.faults_until)
    site.mend()
    quiet = _settle(site)
    wrong = _wrong(site, quiet=quiet)
    world.scheduler.close()
    return Ran(
        seed=seed,
        hash=world.story.hash(),
        violations=tuple(wrong),
        notes=dict(world.story.notes),
        story=tuple(world.story.last(tail)),
        jobs=len(world.books.submissions),
        turns=world.scheduler.turns,
        lasted_s=world.now,
    )


def _site(seed: int, allowed: frozenset[Fault], database: WorldDatabase, scenario: Scenario) -> Site:
    chance = Random(seed)
    hazards = drawn(sorted(allowed), chance)
    world = World(seed, hazards, chance.uniform(*TROUBLE_S))
    setting = scenario.setting(chance)
    streams, holders = chance.random() < STREAMED or setting.streams, chance.choice(HOLDERS)
    # Whoever holds a lease counts with the database's clock: when that is set forward, it is late without a fault.
    steady = not hazards.rate(Fault.CLOCK_JUMP)
    return Site(
        world,
        database,
        replace(
            setting,
            streams=streams,
            holders=max(setting.holders, holders) if steady else 0,
            bootstrap=chance.random() < BOOTSTRAPPED,
        ),
    )


def _settle(site: Site) -> bool:
    """Whether everything came to its end."""
    scheduler: Scheduler = site.world.scheduler
    until = max(scheduler.now, site.world.all_well_at) + PATIENCE_S
    while scheduler.now < until and not scheduler.broken:
        scheduler.run(scheduler.now + LOOK_S)
        awake = scheduler.now > site.world.all_well_at + AWAKE_S
        if awake and site.people.content and _is_quiet(site) and at_rest(site):
            return True
    return False


def _is_quiet(site: Site) -> bool:
    ended = ", ".join(f"'{state}'" for state in sorted(JOB.terminal))
    with site.database.aside() as database:
        unended, unsettled, active = database.read(
            lambda tx: (
                tx.scalar(f"SELECT count(*) FROM orchestrator_jobs WHERE status NOT IN ({ended})"),
                tx.scalar("SELECT count(*) FROM workers WHERE status NOT IN ('active', 'terminated')")
                + tx.scalar("SELECT count(*) FROM orchestrator_leases WHERE status = 'active'"),
                tx.scalar("SELECT count(*) FROM workers WHERE status = 'active'"),
            )
        )
    settled = active == len(site.cloud.living()) and active <= site.setting.min_workers
    return unended == 0 and unsettled == 0 and settled


def _wrong(site: Site, *, quiet: bool) -> list[str]:
    world = site.world
    broken = [
        f"broken: {strand.process.name}/{strand.name} ended with {''.join(traceback.format_exception(error))}"
        for strand, error in world.scheduler.broken
    ]
    if broken:
        return broken
    unrest = [] if quiet else [f"unrest: not everything came to its end within {PATIENCE_S:g} s"]
    return [*unrest, *violations(history_of(site, quiet=True))]
