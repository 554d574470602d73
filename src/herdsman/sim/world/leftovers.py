"""What is in the streams of a world when somebody looks from outside."""

from collections import Counter
from datetime import timedelta

from herdsman.sim.checks.history import Hints
from herdsman.sim.world.bus import NAMES
from herdsman.sim.world.site import Site
from herdsman.store.hints import recent_dead

_WORK = (NAMES.jobs, NAMES.ingest, NAMES.preloads)
_EVER, _ALL = timedelta(days=1), 1000
_MADE_UP = "there is no job"
"""So begins the reason of a letter about an entry that no job stands behind."""


def hints_of(site: Site) -> Hints | None:
    """None in a world without streams."""
    if site.redis is None:
        return None
    logs = site.redis.memory.logs
    found = {stream.name: logs[stream.name] for stream in _WORK if stream.name in logs}
    left = {name: len(log.entries) for name, log in found.items() if log.entries}
    held = {name: sum(len(group.held) for group in log.groups.values()) for name, log in found.items()}
    dead = logs[NAMES.dead].entries.values() if NAMES.dead in logs else ()
    letters = Counter(each["job_id"] for each in dead if not each["last_error"].startswith(_MADE_UP))
    return Hints(left=left, held={name: number for name, number in held.items() if number}, letters=letters)


def at_rest(site: Site) -> bool:
    """Nothing is left over, and every death is announced."""
    hints = hints_of(site)
    if hints is None:
        return True
    return not hints.left and not hints.held and all(job_id in hints.letters for job_id in _dead(site))


def _dead(site: Site) -> list[str]:
    with site.database.aside() as database:
        return [each.job_id for each in database.read(lambda tx: recent_dead(tx, _EVER, _ALL))]
