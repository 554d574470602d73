"""The chain of timeouts and limits: which setting has to leave room for which."""

from herdsman.settings.fleet_relations import LEADERSHIP, MACHINES, WORKERS
from herdsman.settings.job_relations import CLAIMS, LEASES
from herdsman.settings.loop_relations import LOOPS
from herdsman.settings.model import Settings
from herdsman.settings.relation import Relation

RELATIONS: tuple[Relation, ...] = (*CLAIMS, *LEASES, *WORKERS, *MACHINES, *LEADERSHIP, *LOOPS)


def broken(settings: Settings) -> tuple[str, ...]:
    """A sentence for each relation that must hold and does not."""
    return tuple(each.sentence(settings) for each in RELATIONS if each.required and not each.check(settings))


def advice(settings: Settings) -> tuple[str, ...]:
    """A sentence for each relation that should hold and does not; a program logs them when it starts."""
    return tuple(
        each.sentence(settings) for each in RELATIONS if not each.required and not each.check(settings)
    )
