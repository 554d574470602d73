"""Named kinds of simulations: who takes part, what is asked of them, and which faults strike by default."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from herdsman.errors import InvalidRequest
from herdsman.testing.simulation.setup import Setting
from herdsman.testing.simulation.users import Demand

EVERYTHING = "all"
NAMED_SHARE = 0.25
"""Of the worlds in which there is room for it, so many have a pool that a person asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    said: str
    """One sentence for a person who chooses."""
    faults: str
    """What may go wrong, as `parse_faults` reads it; each seed draws some of them."""
    setting: Callable[[Random], Setting]
    """The same for the same state of chance."""


def scenario_named(name: str) -> Scenario:
    """`InvalidRequest` with the names that there are, for one that is not among them."""
    if name not in SCENARIOS:
        raise InvalidRequest(f"--scenario is {name!r}: write one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def _anything(chance: Random) -> Setting:
    most_workers, min_workers = chance.randint(1, 3), chance.choice((0, 0, 1, 2))
    unserved = chance.choice((0, 0, 0, 1, 2))
    demand = Demand(
        jobs=chance.randint(4, 14),
        cancels=chance.randint(0, 3),
        drains=chance.choice((0, 0, 1)),
        requeues=chance.choice((0, 0, 1)),
        pauses=chance.choice((0, 0, 0, 1)),
        unserved=unserved,
        # What nobody can run keeps the workers of the default pool, and they share one ceiling.
        named_pool=not unserved and most_workers > max(1, min_workers) and chance.random() < NAMED_SHARE,
    )
    return Setting(
        orchestrators=chance.choice((1, 1, 2, 3)), demand=demand, most_workers=most_workers, min_workers=min_workers
    )


def _cancel(chance: Random) -> Setting:
    jobs = chance.randint(6, 14)
    demand = Demand(jobs=jobs, cancels=jobs, requeues=chance.randint(0, 2))
    return Setting(orchestrators=chance.choice((1, 2)), demand=demand, most_workers=2)


def _drawn(**wanted: range | tuple[int, ...] | int) -> Callable[[Random], Setting]:
    """From fields of `Demand` and `Setting`: of a range or a tuple each seed draws one, in the order in which they stand."""

    def setting(chance: Random) -> Setting:
        found: dict[str, Any] = {
            name: chance.choice(each) if isinstance(each, range | tuple) else each for name, each in wanted.items()
        }
        asked = {each.name: found.pop(each.name) for each in fields(Demand) if each.name in found}
        return Setting(demand=Demand(**asked), **found)

    return setting


SCENARIOS: Mapping[str, Scenario] = {
    EVERYTHING: Scenario(said="Something of everything, drawn anew by each seed.", faults="all", setting=_anything),
    "jobs": Scenario(
        said="One replica and many jobs, over a network and to a database that lose words.",
        faults="cut_before,cut_after,rolled_back,contended,lost_request,lost_reply,doubled_request,"
        "crash,failing_handler",
        setting=_drawn(jobs=range(20, 31), requeues=1, orchestrators=1, most_workers=range(1, 4)),
    ),
    "fleet": Scenario(
        said="At most two machines, of a provider that lies, forgets and is slow.",
        faults="no_capacity,provider_away,rejected,spawn_unanswered,spawn_vanished,spawn_late,listing_lag,"
        "listing_empty,find_lies,end_ignored,end_unanswered,preempted,leftover,"
        "provider_out,dies_at_start,never_boots,crash",
        setting=_drawn(jobs=range(4, 11), drains=range(3), orchestrators=1, most_workers=2, min_workers=(0, 1, 2)),
    ),
    "leader": Scenario(
        said="Three replicas that die, stand still, are replaced too early, and wake again.",
        faults="crash,stop,twin,partition,cut_after,rolled_back,database_away,clock_jump",
        setting=_drawn(jobs=range(4, 11), cancels=range(2), orchestrators=3, most_workers=2),
    ),
    "poison": Scenario(
        said="Jobs that kill, crash, fail, or hang whatever runs them.",
        faults="poison,crashing_handler,failing_handler,hanging_handler,deaf_handler,lost_reply",
        setting=_drawn(jobs=range(6, 15), requeues=range(3), orchestrators=1, most_workers=range(1, 4)),
    ),
    "cancel": Scenario(
        said="As many cancels as jobs, some of which do not hear them.",
        faults="deaf_handler,hanging_handler,crash,stop,lost_request,lost_reply,doubled_request,cut_after",
        setting=_cancel,
    ),
    "agents": Scenario(
        said="Agents that take turns, and some of whose jobs no worker can run.",
        faults="crash,stop,lost_request,lost_reply,cut_after,contended,failing_handler",
        setting=_drawn(
            jobs=range(6, 13), unserved=range(1, 4), pauses=range(2), orchestrators=(1, 2), most_workers=range(1, 3)
        ),
    ),
    "pools": Scenario(
        said="A pool that a person asks for, beside the one of the settings.",
        faults="crash,stop,lost_reply,cut_after,no_capacity,preempted,never_boots",
        setting=_drawn(
            jobs=range(6, 13), drains=(0, 1), named_pool=True, orchestrators=(1, 2), most_workers=range(2, 4)
        ),
    ),
    "leases": Scenario(
        said="Programs of others that lease GPUs, die, stand still, and are cut off.",
        faults="crash,stop,partition,cut_before,cut_after,rolled_back,contended,database_away",
        setting=_drawn(jobs=range(2, 7), orchestrators=(1, 2), most_workers=1, holders=5),
    ),
    "streams": Scenario(
        said="A Redis that comes and goes, forgets, and holds what nobody of ours has put there.",
        faults="bus_away,bus_flushed,bus_unanswered,stream_deleted,entry_lost,entry_doubled,entry_forged,"
        "crash,cut_after",
        setting=_drawn(
            jobs=range(6, 15), cancels=range(2), drains=(0, 0, 1), orchestrators=(1, 2), most_workers=2, streams=True
        ),
    ),
    "databases": Scenario(
        said="A fleet with a second database beside its own, a copy or an empty one, or with a restored backup.",
        faults="copied_database,fresh_database,restored_database,database_out,crash,preempted,listing_lag,spawn_unanswered",
        setting=_drawn(jobs=range(4, 9), orchestrators=(1, 2), most_workers=2, min_workers=(1, 2)),
    ),
}
