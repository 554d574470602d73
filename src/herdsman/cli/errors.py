"""What a person reads when something fails, and the exit status that goes with it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from herdsman import __version__, errors
from herdsman.cli.output import echo
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
        raise errors.InvalidSettings(
            f"herdsman {command} needs the package {package}, which is not installed here: install {install}"
        ) from error


class VersionMismatch(errors.HerdsmanError):
    """The server and this command are of releases that do not work together."""


EXIT_CODES: tuple[tuple[type[errors.HerdsmanError], int], ...] = (
    (errors.InvalidRequest, 2),  # as for a wrong option
    (errors.NotFound, 3),
    (errors.Conflict, 4),
    (errors.StaleWrite, 4),
    (errors.TooMany, 5),
    (errors.Unreachable, 5),
    (errors.StoreUnavailable, 5),
    (errors.ProviderUnavailable, 5),
    (errors.StoreMisconfigured, 6),
    (errors.ProviderRejected, 6),
    (errors.Unauthenticated, 8),
    (errors.Forbidden, 8),
    (VersionMismatch, 9),
)


def exit_code(error: errors.HerdsmanError) -> int:
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
        except errors.HerdsmanError as error:
            explained = explain(error, self)
            if explained is error:
                raise
            raise explained from error


def explain(error: errors.HerdsmanError, server: Server) -> errors.HerdsmanError:
    """The same error with what to do about it from here; its type decides the exit status."""
    missing_path = isinstance(error, errors.NotFound) and NO_SUCH_PATH in str(error)
    if server.version is not None and (missing_path or isinstance(error, errors.Unreachable | errors.InvalidRequest)):
        reason = difference(server.version, __version__)
        return error if reason is None else VersionMismatch(f"{reason} (the error was: {error})")
    if isinstance(error, errors.Unauthenticated) and server.token_from is None:
        return errors.Unauthenticated(
            f"{server.url} requires a token and none was sent: set API_TOKEN;"
            " an admin creates one with herdsman token create NAME"
        )
    if isinstance(error, errors.Unauthenticated):
        return errors.Unauthenticated(f"{error} (herdsman token create NAME); it came from {server.token_from}")
    if isinstance(error, errors.Unreachable) and server.version is None:
        return errors.Unreachable(
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
    return f"the server is newer than {what}: it runs Herdsman {server}, this is {here}; upgrade this one: {wanted}"
