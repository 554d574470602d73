"""What a person is told when something fails, and the exit status that goes with it; above all when the server does not answer."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from herdsman import __version__
from herdsman.cli.output import echo
from herdsman.errors import (
    Conflict,
    Forbidden,
    HerdsmanError,
    InvalidRequest,
    NotFound,
    ProviderRejected,
    ProviderUnavailable,
    StaleWrite,
    StoreMisconfigured,
    StoreUnavailable,
    TooMany,
    Unauthenticated,
    Unreachable,
)
from herdsman.text import release

NO_SUCH_PATH = "there is nothing at this path"


class VersionMismatch(HerdsmanError):
    """The server and this command do not speak the same language."""


@dataclass
class Server:
    url: str
    token_from: str | None
    """The setting or the file that the token is from; None when there is none."""
    version: str | None = None
    """As it said with its last answer."""

    def met(self, version: str) -> None:
        """A difference is worth a word, once, before anything goes wrong."""
        news, self.version = self.version is None, version
        if news and (said := difference(version, __version__)) is not None:
            echo(f"warning: {said}", err=True)

    @contextmanager
    def explained(self) -> Generator[None]:
        try:
            yield
        except HerdsmanError as error:
            told = explain(error, self)
            if told is error:
                raise
            raise told from error


def explain(error: HerdsmanError, server: Server) -> HerdsmanError:
    """The same error with what to do about it from here; its own kind decides the exit status."""
    if _may_be_the_version(error) and server.version is not None:
        said = difference(server.version, __version__)
        return error if said is None else VersionMismatch(f"{said} (it was: {error})")
    if isinstance(error, Unauthenticated):
        return Unauthenticated(_unknown(error, server))
    if isinstance(error, Unreachable) and server.version is None:
        return Unreachable(
            f"{error}; start it with herdsman up, or set API_URL to where it is (now {server.url})"
        )
    return error


def difference(server: str, here: str, what: str = "this command") -> str | None:
    """What to do where the releases differ; None where they fit. The last number of a version never matters."""
    theirs, ours = release(server), release(here)
    if theirs is None or ours is None or theirs == ours:
        return None
    wanted = f"pip install 'herdsman=={theirs[0]}.{theirs[1]}.*'"
    if theirs < ours:
        return (
            f"the server is older than {what}: it runs Herdsman {server}, this is {here};"
            f" upgrade the server, or use {wanted} here"
        )
    return (
        f"the server is newer than {what}: it runs Herdsman {server}, this is {here};"
        f" upgrade this one: {wanted}"
    )


@dataclass
class WorkersServer:
    """The server of a worker, which may be upgraded while the worker runs."""

    say: Callable[[str], None]
    version: str | None = None

    def met(self, version: str) -> None:
        """Called with every answer; a word is said when it changes."""
        if version == self.version:
            return
        self.version = version
        if (said := difference(version, __version__, "this worker")) is not None:
            self.say(f"warning: {said}")


def _may_be_the_version(error: HerdsmanError) -> bool:
    if isinstance(error, NotFound):
        return NO_SUCH_PATH in str(error)
    return isinstance(error, Unreachable | InvalidRequest)


def _unknown(error: HerdsmanError, server: Server) -> str:
    if server.token_from is None:
        return (
            f"{server.url} wants a token, and none was sent: set API_TOKEN;"
            " an admin makes one with herdsman token create NAME"
        )
    return f"{error} (herdsman token create NAME); it came from {server.token_from}"


EXIT_CODES: tuple[tuple[type[HerdsmanError], int], ...] = (
    (InvalidRequest, 2),  # as for a wrong option
    (NotFound, 3),
    (Conflict, 4),
    (StaleWrite, 4),
    (TooMany, 5),
    (Unreachable, 5),
    (StoreUnavailable, 5),
    (ProviderUnavailable, 5),
    (StoreMisconfigured, 6),
    (ProviderRejected, 6),
    (Unauthenticated, 8),
    (Forbidden, 8),
    (VersionMismatch, 9),
)


def exit_code(error: HerdsmanError) -> int:
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), 1)
