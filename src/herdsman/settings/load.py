"""From the environment and the files to checked settings."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from herdsman.core.errors import InvalidSettings
from herdsman.settings.build import build
from herdsman.settings.catalogue import groups
from herdsman.settings.config_file import read_config_file
from herdsman.settings.group import Group
from herdsman.settings.merge import merged
from herdsman.settings.model import Origin, Settings
from herdsman.settings.names import CONFIG_FILE
from herdsman.settings.relations import broken
from herdsman.settings.sources import Found, Source, from_variables, read_dotenv


def load_settings(
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    given: Mapping[str, str] | None = None,
) -> Settings:
    """The settings in force here. Nothing else in the program looks at the environment.

    `given` stands above the environment: what a person wrote on the command line.

    Raises `InvalidSettings` with one line per problem; a secret is in none of them.
    """
    variables = {**(os.environ if env is None else env), **(given or {})}
    source = _read(variables, Path.cwd() if cwd is None else cwd)
    settings = _checked(source.found, source.problems)
    pools = {name: _of_pool(name, {**source.found, **own}) for name, own in source.pools.items()}
    return settings.model_copy(update={"by_pool": MappingProxyType(pools)})


def _checked(found: Mapping[str, Found], problems: Sequence[str] = ()) -> Settings:
    built = {name: build(name, group, found) for name, group in groups().items()}
    wrong = [problem for result in built.values() if not isinstance(result, Group) for problem in result]
    _refuse([*problems, *wrong])
    origins = {name: each.origin for name, each in found.items()}
    settings = Settings.model_validate({**built, "origins": origins})
    _refuse(broken(settings))
    return settings


def _of_pool(name: str, found: Mapping[str, Found]) -> Settings:
    """A pool lives by the rules of all, but for its own."""
    try:
        return _checked(found)
    except InvalidSettings as error:
        lines = (f"pool {name}: {line}" for line in str(error).splitlines())
        raise InvalidSettings("\n".join(lines)) from error


def _read(env: Mapping[str, str], cwd: Path) -> Source:
    dotenv = read_dotenv(cwd / ".env")
    named = env.get(CONFIG_FILE) or dotenv.get(CONFIG_FILE)
    config_file = cwd / (named or "herdsman.toml")
    sources = (
        from_variables(env, Origin.ENVIRONMENT, "the environment"),
        from_variables(dotenv, Origin.DOTENV, str(cwd / ".env")),
        read_config_file(config_file) if named or config_file.is_file() else Source({}),
    )
    return merged(sources, cwd)


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise InvalidSettings("\n".join(problems))
