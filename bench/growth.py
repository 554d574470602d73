"""Measures what a claim costs beside jobs that it does not take: of other types, of many agents, of many models.

Run it with `python -m bench.growth`. Each is held against the same claim on a queue that is empty but for its own jobs.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

from bench.aims import Aim, conclude, surroundings, verdict
from bench.asked import parser, say
from bench.backlog import BATCH, fill, settle
from bench.databases import PLACES, opened
from bench.machine import Watch
from bench.ours import Ours, enlist
from bench.peers.figures import ratio, table
from bench.work import KIND, PAYLOAD, WORKERS
from herdsman.context import Services
from herdsman.db.connection import Tx
from herdsman.jobs.assign import claim_for
from herdsman.jobs.commands import submit_jobs
from herdsman.jobs.model import NewJob
from herdsman.jobs.protocol import ClaimRequest

OWN = NewJob(type=KIND, payload=PAYLOAD)
OTHER = replace(OWN, type="other")
EMPTY = "nothing else"
SIZES = (1, 100)
HEAD = """# Claims beside other jobs

Microseconds for each job to claim it and to complete it, alone and with a hundred others, by workers that take one
type; in brackets how many statements the claim of so many took, and then how many times as long as on a queue that
holds nothing else. Medians of {rounds} rounds that take turns.

"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits besides the jobs that are submitted and claimed."""

    name: str
    add: Callable[[Services], None]
    own: Callable[[int], NewJob] = lambda _: OWN
    """The jobs that are submitted, by their number: of the same kind as what waits, which so stays what it is."""


def backlogs(waiting: int, agents: int, models: int) -> list[Backlog]:
    def of_agent(number: int) -> NewJob:
        return replace(OWN, agent=f"agent-{number % agents:04}")

    def of_model(number: int) -> NewJob:
        return replace(OWN, model=f"model-{number % models:04}")

    return [
        Backlog(EMPTY, lambda _: None),
        Backlog(f"{waiting:,} jobs of another type", lambda services: fill(services, OTHER, waiting)),
        Backlog(
            f"2 jobs of each of {agents:,} agents",
            lambda services: _add(services, [of_agent(number) for number in range(2 * agents)]),
            of_agent,
        ),
        Backlog(
            f"2 jobs of each of {models:,} models",
            lambda services: _add(services, [of_model(number) for number in range(2 * models)]),
            of_model,
        ),
    ]


def _add(services: Services, news: list[NewJob]) -> None:
    for start in range(0, len(news), BATCH):
        submit_jobs(services, news[start : start + BATCH])


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    statements: int


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--waiting", type=int, help="how many jobs of another type wait")
    made.add_argument("--rounds", type=int, help="more rounds, less noise")
    asked = made.parse_args()
    waiting = asked.waiting or (2_000 if asked.quick else 1_000_000)
    rounds, watch = asked.rounds or (3 if asked.quick else 30), Watch()
    beside = backlogs(waiting, 20 if asked.quick else 1_000, 5 if asked.quick else 50)
    found = {name: _measure(name, beside, rounds) for name in PLACES}
    sought = aims(found, beside)
    parts = (
        surroundings(watch, {}, ()),
        *(_table(name, costs) for name, costs in found.items()),
        verdict(sought),
    )
    return conclude(asked, "growth", HEAD.format(rounds=rounds) + "\n\n".join(parts) + "\n", sought, watch)


Costs = Mapping[tuple[str, int], Cost]
"""By the name of what waits, and by how many are claimed at once."""


def _measure(database: str, beside: list[Backlog], rounds: int) -> Costs:
    """One database for each backlog, all at once, so that they can take turns."""
    with ExitStack() as stack:
        names = {each.name: f"growth_{number}" for number, each in enumerate(beside)}
        place = stack.enter_context(PLACES[database](list(names.values())))
        stores: dict[str, Services] = {}
        for each in beside:
            say(f"{place.name}: {each.name}")
            services = stores[each.name] = stack.enter_context(opened(place.urls[names[each.name]]))
            enlist(services)
            each.add(services)
            settle(services)
        kept: dict[tuple[str, int], list[Cost]] = {(each.name, size): [] for each in beside for size in SIZES}
        for number in range(rounds + 1):
            for each, size in product(beside, SIZES):
                news = [each.own(number * size + place) for place in range(size)]
                cost = _cycle(stores[each.name], news)
                if number:  # the first warms up
                    kept[each.name, size].append(cost)
        return {
            case: Cost(median(each.seconds for each in costs), costs[-1].statements) for case, costs in kept.items()
        }


def _cycle(services: Services, news: list[NewJob]) -> Cost:
    """Claims as many as it submits, of one type; which ones they are does not matter. Of models that few workers have
    loaded fewer are given out, as they are kept for these workers."""
    size = len(news)
    submit_jobs(services, news)
    with _counted() as statements:
        began = perf_counter()
        claims = claim_for(services, {worker: ClaimRequest(types=(KIND,)) for worker in WORKERS[:size]})
        took = perf_counter() - began
    assert claims, "no job was claimed"
    began = perf_counter()
    Ours(services).complete([claim.key for claim in claims])
    return Cost((took + perf_counter() - began) / len(claims), len(statements))


@contextmanager
def _counted() -> Generator[list[str]]:
    """What is sent to the database meanwhile, but for the begin and the end of the transaction."""
    sent: list[str] = []

    def counting(name: str) -> Any:
        original = getattr(Tx, name)

        def send(*words: Any, **more: Any) -> Any:
            sent.append(name)
            return original(*words, **more)

        return patch.object(Tx, name, send)

    with ExitStack() as stack:
        for name in ("run", "run_many", "rows", "execute"):
            stack.enter_context(counting(name))
        yield sent


def _table(database: str, costs: Costs) -> str:
    rows = [
        [
            name,
            *(
                f"{1e6 * costs[name, size].seconds:,.0f} ({costs[name, size].statements})"
                f" {ratio(costs[name, size].seconds, costs[EMPTY, size].seconds)}"
                for size in SIZES
            ),
        ]
        for name in dict.fromkeys(name for name, _ in costs)
    ]
    return table([f"{database}, beside", *(f"by {size}" for size in SIZES)], rows)


def aims(found: Mapping[str, Costs], beside: list[Backlog]) -> list[Aim]:
    _, types, agents, _ = (each.name for each in beside)
    flat = [
        Aim(
            what=f"{database}, one claim beside {types}, against an empty queue",
            ratio=costs[types, 1].seconds / costs[EMPTY, 1].seconds,
            most=1.3,
        )
        for database, costs in found.items()
    ]
    few = [
        Aim(
            what=f"{database}, statements of a claim of {SIZES[-1]} beside {agents}, against 6",
            ratio=costs[agents, SIZES[-1]].statements / 6,
            most=1.0,
        )
        for database, costs in found.items()
    ]
    return [*flat, *few]


if __name__ == "__main__":
    sys.exit(main())
