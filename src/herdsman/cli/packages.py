"""Packages that only some installations have, loaded only where they are used."""

from collections.abc import Generator
from contextlib import contextmanager

from herdsman.core.errors import InvalidSettings

SERVER = (
    "herdsman {} needs the package {{}}, which is not installed here: a control plane needs herdsman[server] and the"
    " driver of its database"
)


@contextmanager
def needed(said: str) -> Generator[None]:
    """`InvalidSettings` for a package that is missing; `{}` in the sentence is its name. A bug of ours stays one."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "herdsman").startswith("herdsman"):
            raise
        raise InvalidSettings(said.format(error.name)) from error
