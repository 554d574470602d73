"""The connection to the server: its address, the token, errors with the next step, and ids as people type them."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TypeVar

from herdsman.cli.errors import Server
from herdsman.cli.output import did_you_mean
from herdsman.cli.services import warned_settings
from herdsman.client import Client, calls
from herdsman.client.call import Call
from herdsman.errors import Forbidden, InvalidRequest, NotFound, Unreachable
from herdsman.server.runtime_files import runtime_files, shown_database
from herdsman.settings import Settings

T = TypeVar("T")

PATIENCE = timedelta(seconds=15)
"""How long a command waits for a server that restarts."""
SHORTEST_BEGIN, SHORTEST_END = 4, 6
PAGE, PAGES = 200, 5
"""The end of an id is compared with so many of the newest; its beginning is looked up among all."""
_MOST_LISTED = 8
_WHOLE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


class ServerClient(Client):
    """The client of a person at a terminal: its errors name the next step."""

    def __init__(self, url: str, token: str | None, *, token_from: str, patience: timedelta) -> None:
        self.server = Server(url, token_from=None if token is None else token_from)
        super().__init__(url, token, patience=patience, on_version=self.server.met)

    def send(self, call: Call[T]) -> T:
        with self.server.explained():
            return super().send(call)


def connect() -> ServerClient:
    """To the server that API_URL names; without it, to the one of this machine."""
    settings = warned_settings()
    url = server_url(settings)
    # A server that crashed has left its address behind: do not wait for that one.
    expected = settings.api.api_url is not None or runtime_files(settings).running() is not None
    return client_of(settings, url, PATIENCE if expected else timedelta(0))


def client_of(settings: Settings, url: str, patience: timedelta) -> ServerClient:
    given, files = settings.api.api_token, runtime_files(settings)
    if given is not None:
        return ServerClient(url, given.get_secret_value(), token_from="API_TOKEN", patience=patience)  # noqa: S106
    return ServerClient(url, files.token(), token_from=str(files.admin_token), patience=patience)


def server_url(settings: Settings) -> str:
    """`Unreachable`, and how to start one, where API_URL names no server and none of this database was started here."""
    if settings.api.api_url is not None:
        return settings.api.api_url
    there, database = runtime_files(settings).announced(), shown_database(settings)
    if there is None:
        raise Unreachable(
            "no server runs on this machine: start one with herdsman up or herdsman serve,"
            " or set API_URL to where one is"
        )
    if there.database != database:
        raise Unreachable(
            f"the server of this machine uses the database {there.database}, and DATABASE_URL is {database} here:"
            f" set API_URL={there.url} to use it, or start another with herdsman up and a LOCAL_STATE_DIR of its own"
        )
    return there.url


def resolve_job(client: Client, named: str) -> str:
    """The whole id of a job, of which the beginning or the end is enough where it fits only one."""
    if _WHOLE_ID.fullmatch(named):
        return named

    def candidates() -> Iterable[str]:
        if len(named) >= SHORTEST_BEGIN:
            begin = client.send(calls.jobs(begins=named, limit=PAGE)).jobs
            if found := [each.job_id for each in begin if each.job_id.startswith(named)]:
                yield from found
                return
        after: str | None = None
        for _ in range(PAGES):
            page = client.send(calls.jobs(after=after, limit=PAGE))
            yield from (each.job_id for each in page.jobs)
            if (after := page.next) is None:
                return

    return _resolved("job", named, lambda: client.send(calls.job(named)), candidates)


def resolve_worker(client: Client, named: str) -> str:
    def candidates() -> Iterable[str]:
        """Live ones first, however old they are."""
        yield from (each.worker_id for each in client.send(calls.fleet()).workers)
        yield from (each.worker_id for each in client.send(calls.workers(None, PAGE)).workers)

    return _resolved("worker", named, lambda: client.send(calls.worker(named)), candidates)


def resolve_jobs(client: Client, named: Sequence[str]) -> list[str]:
    """Each once, in the order in which they were named."""
    return list(dict.fromkeys(resolve_job(client, each) for each in named))


def _resolved(kind: str, named: str, find: Callable[[], object], recent: Callable[[], Iterable[str]]) -> str:
    try:
        find()
    except NotFound as missing:
        try:
            known = list(recent())
        except Forbidden:
            raise missing from None
        return pick(kind, named, known)
    except Forbidden:  # this token may not read it, but perhaps do what is wanted
        return named
    return named


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
