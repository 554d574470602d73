"""Ids as people type them: the beginning or the end of one is enough where it fits only one."""

import re
from collections.abc import Callable, Iterable, Sequence

from herdsman.cli.output import did_you_mean
from herdsman.client import Client, calls
from herdsman.errors import Forbidden, InvalidRequest, NotFound

SHORTEST_BEGIN, SHORTEST_END = 4, 6
PAGE, PAGES = 200, 5
"""So many of the newest are compared with the end of an id; the beginning is looked up among all."""
_MOST_LISTED = 8
_OURS = re.compile(r"[0-9a-f]{32}", re.ASCII)


def resolve_job(client: Client, named: str) -> str:
    """The whole id of a job."""
    if _OURS.fullmatch(named):
        return named
    return _resolved("job", named, lambda: client.send(calls.job(named)), lambda: _candidates(client, named))


def resolve_worker(client: Client, named: str) -> str:
    return _resolved(
        "worker", named, lambda: client.send(calls.worker(named)), lambda: _recent_workers(client)
    )


def resolve_jobs(client: Client, named: Sequence[str]) -> list[str]:
    """Each once, in the order in which they were named."""
    return list(dict.fromkeys(resolve_job(client, each) for each in named))


def pick(kind: str, named: str, known: Iterable[str]) -> str:
    """The only one that begins or ends with what was typed."""
    listed = list(dict.fromkeys(known))
    if named in listed:
        return named
    found = [each for each in listed if fits(named, each)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise NotFound(f"there is no {kind} {named!r}{did_you_mean(named, listed)}")
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    raise InvalidRequest(
        f"{named!r} fits {len(found)} {kind}s: {', '.join(found[:_MOST_LISTED])}{more};"
        " type more of it, or the last characters"
    )


def fits(named: str, whole: str) -> bool:
    return (len(named) >= SHORTEST_BEGIN and whole.startswith(named)) or (
        len(named) >= SHORTEST_END and whole.endswith(named)
    )


def _resolved(kind: str, named: str, look: Callable[[], object], recent: Callable[[], Iterable[str]]) -> str:
    try:
        look()
    except NotFound as missing:
        try:
            known = list(recent())
        except Forbidden:
            raise missing from None
        return pick(kind, named, known)
    except Forbidden:  # it may not look at one, but perhaps do what was asked
        return named
    return named


def _candidates(client: Client, named: str) -> Sequence[str]:
    """Jobs that begin so, however old; where there are none, the newest, of which one may end so."""
    begin = client.send(calls.jobs(begins=named, limit=PAGE)).jobs if len(named) >= SHORTEST_BEGIN else ()
    found = [each.job_id for each in begin if each.job_id.startswith(named)]
    return found or list(_recent_jobs(client))


def _recent_jobs(client: Client) -> Iterable[str]:
    after: str | None = None
    for _ in range(PAGES):
        page = client.send(calls.jobs(after=after, limit=PAGE))
        yield from (each.job_id for each in page.jobs)
        if (after := page.next) is None:
            return


def _recent_workers(client: Client) -> Iterable[str]:
    """Those that live come first, however old they are."""
    yield from (each.worker_id for each in client.send(calls.herd()).workers)
    yield from (each.worker_id for each in client.send(calls.workers(None, PAGE)).workers)
