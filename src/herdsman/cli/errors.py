"""What a person reads when something fails, and the exit status that goes with it."""

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
    InvalidSettings,
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

SERVER = "herdsman[server] and the driver of your database"


@contextmanager
def needed(command: str, install: str = SERVER) -> Generator[None]:
    """`InvalidSettings` for a package that is missing. A module of ours that is missing is a bug, and stays one."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "herdsman").partition(".")[0]
        if package == "herdsman":
            raise
        raise InvalidSettings(
            f"herdsman {command} needs the package {package}, which is not installed here: install {install}"
        ) from error


class VersionMismatch(HerdsmanError):
    """The server and this command are of releases that do not work together."""


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


@dataclass
class Server:
    """The server as a command knows it; errors that come from it get the next step added."""

    url: str
    token_from: str | None
    """The setting or the file that the token is from; None when there is none."""
    version: str | None = None
    """As it said with its last answer."""
    what: str = "this command"
    say: Callable[[str], None] = lambda text: echo(text, err=True)

    def met(self, version: str) -> None:
        """Warns about a different release before anything goes wrong, and again when it changes: a server may be
        upgraded while a worker runs."""
        if version == self.version:
            return
        self.version = version
        if (warning := difference(version, __version__, self.what)) is not None:
            self.say(f"warning: {warning}")

    @contextmanager
    def explained(self) -> Generator[None]:
        try:
            yield
        except HerdsmanError as error:
            explained = explain(error, self)
            if explained is error:
                raise
            raise explained from error


def explain(error: HerdsmanError, server: Server) -> HerdsmanError:
    """The same error with what to do about it from here; its type decides the exit status."""
    missing_path = isinstance(error, NotFound) and NO_SUCH_PATH in str(error)
    if server.version is not None and (missing_path or isinstance(error, Unreachable | InvalidRequest)):
        reason = difference(server.version, __version__)
        return error if reason is None else VersionMismatch(f"{reason} (the error was: {error})")
    if isinstance(error, Unauthenticated) and server.token_from is None:
        return Unauthenticated(
            f"{server.url} requires a token and none was sent: set API_TOKEN;"
            " an admin creates one with herdsman token create NAME"
        )
    if isinstance(error, Unauthenticated):
        return Unauthenticated(f"{error} (herdsman token create NAME); it came from {server.token_from}")
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
