"""From the environment, `.env` and `herdsman.toml` to checked settings, or to sentences on what is wrong with them."""

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

from pydantic import ValidationError
from pydantic_settings import BaseSettings, DotEnvSettingsSource

from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.ids import DEFAULT_POOL
from herdsman.jobs.rules import check_name
from herdsman.settings.kinds import Group
from herdsman.settings.model import (
    ACCEPTED,
    CATALOGUE,
    CONFIG_FILE,
    PREFIX,
    Origin,
    Setting,
    Settings,
    groups,
    hint,
    is_unknown,
)
from herdsman.settings.relations import broken

_LONGEST_SHOWN = 80
_LONGEST_SECRET = 65_536

# Money is spent by all pools together, and the account is one.
SHARED = {
    "MAX_COST_PER_HOUR_USD",
    "BUDGET_PER_HOUR_USD",
    "BUDGET_PER_DAY_USD",
    "ORCHESTRATOR_POLL_SEC",
    "RUNPOD_API_KEY",
    "RUNPOD_API_URL",
    "RUNPOD_NAME_PREFIX",
    "RUNPOD_PORTS",
}
_OF_POOLS = ("scaling", "breaker", "health", "runpod")
OWN = tuple(name for name, each in CATALOGUE.items() if each.group in _OF_POOLS and name not in SHARED)
"""What a pool may have of its own."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one place says about a setting, before anyone judges the value."""

    value: object
    origin: Origin
    spelled: str
    """The name as it was typed: with or without the prefix, in capitals or not."""
    where: str
    """Where a person would look for it."""

    @property
    def prefixed(self) -> bool:
        return self.spelled.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class Source:
    """One place, or all of them together."""

    found: Mapping[str, Found]
    """By accepted name, without the prefix."""
    problems: tuple[str, ...] = ()
    pools: Mapping[str, Mapping[str, Found]] = field(default_factory=dict[str, Mapping[str, Found]])
    """What only one pool lives by; only the configuration file knows pools."""


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
    cwd = Path.cwd() if cwd is None else cwd
    dotenv = _read_dotenv(cwd / ".env")
    named = variables.get(CONFIG_FILE) or dotenv.get(CONFIG_FILE)
    config_file = cwd / (named or "herdsman.toml")
    sources = (
        _from_variables(variables, Origin.ENVIRONMENT, "the environment"),
        _from_variables(dotenv, Origin.DOTENV, str(cwd / ".env")),
        _read_config_file(config_file) if named or config_file.is_file() else Source({}),
    )
    source = _merged(sources, cwd)
    settings = _checked(source.found, source.problems)
    pools: dict[str, Settings] = {}
    for name, own in source.pools.items():
        try:
            pools[name] = _checked({**source.found, **own})
        except InvalidSettings as error:
            lines = (f"pool {name}: {line}" for line in str(error).splitlines())
            raise InvalidSettings("\n".join(lines)) from error
    return settings.model_copy(update={"by_pool": MappingProxyType(pools)})


def _checked(found: Mapping[str, Found], problems: Sequence[str] = ()) -> Settings:
    built: dict[str, Group] = {}
    wrong = list(problems)
    for name, group in groups().items():
        members = [each for each in CATALOGUE.values() if each.group == name and each.name in found]
        try:
            built[name] = group.model_validate({each.key: found[each.name].value for each in members})
        except ValidationError as error:
            wrong += _refusals(error, members, found)
    if not wrong:
        origins = {name: each.origin for name, each in found.items()}
        settings = Settings.model_validate({**built, "origins": origins})
        wrong = list(broken(settings))
        if not wrong:
            return settings
    raise InvalidSettings("\n".join(wrong))


def _refusals(error: ValidationError, members: list[Setting], found: Mapping[str, Found]) -> Iterator[str]:
    """One for each value that was refused: a default that waits for it is refused too, but is no news."""
    refused = {str(detail["loc"][0]) for detail in error.errors(include_input=False, include_context=False)}
    for setting in members:
        if setting.key in refused:
            here = found[setting.name]
            text = str(setting.kind.shown(here.value))
            text = text if text.isprintable() else ascii(text)
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
            yield f"{here.spelled} must be {setting.kind.allowed}, but is {shown} in {here.where}."


def _merged(sources: Sequence[Source], cwd: Path) -> Source:
    """One source out of several, the first one having the first say. Only a file that counts is opened."""
    chosen = {setting.name: _choose(setting, sources, cwd) for setting in CATALOGUE.values()}
    found = {name: choice for name, choice in chosen.items() if isinstance(choice, Found)}
    problems = [problem for source in sources for problem in source.problems]
    problems += [choice for choice in chosen.values() if isinstance(choice, str)]
    pools = {name: own for source in sources for name, own in source.pools.items()}
    return Source(found, tuple(problems), pools)


def _choose(setting: Setting, sources: Sequence[Source], cwd: Path) -> Found | str | None:
    """What was found, or the problem with it, or nothing."""
    for source in sources:
        direct, by_file = source.found.get(setting.name), source.found.get(setting.file_name or "")
        if direct and by_file and direct.prefixed == by_file.prefixed:
            return f"{direct.spelled} and {by_file.spelled} are both set in {direct.where}; set one of them."
        if by_file and not (direct and direct.prefixed):
            return _open(by_file, setting, cwd)
        if direct:
            return direct
    return None


def _open(by_file: Found, setting: Setting, cwd: Path) -> Found | str:
    """A secret may be given as the path of a file that holds it."""
    path = cwd / str(by_file.value)
    named = f"{path}, the file that {by_file.spelled} in {by_file.where} names,"
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_SECRET + 1).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        return (
            f"{named} cannot be read: {error.strerror if isinstance(error, OSError) else 'it is not text'}."
        )
    if not text or len(text) > _LONGEST_SECRET:
        return f"{named} must hold from 1 to {_LONGEST_SECRET} characters."
    return replace(by_file, value=text, spelled=setting.name, where=str(path))


def _read_dotenv(path: Path) -> Mapping[str, str | None]:
    if not path.is_file():
        return {}
    try:
        return DotEnvSettingsSource(BaseSettings, env_file=path, case_sensitive=True).env_vars
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not valid UTF-8.") from error


def _from_variables(variables: Mapping[str, str | None], origin: Origin, where: str) -> Source:
    """A variable that is set to nothing counts as not set, since that is how many tools unset one."""
    given = {name: value for name, value in variables.items() if value}
    known = (CONFIG_FILE, *(f"{PREFIX}{name}" for name in ACCEPTED))
    problems = tuple(
        f"{name} in {where} is not a setting{hint(name, known)}" for name in sorted(given) if is_unknown(name)
    )
    found: dict[str, Found] = {}
    for name in ACCEPTED:
        spelled = next((each for each in (f"{PREFIX}{name}", name) if each in given), None)
        if spelled is not None:
            found[name] = Found(given[spelled], origin, spelled, where)
    return Source(found, problems)


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    value: object
    table: str | None = None


def _read_config_file(path: Path) -> Source:
    """`herdsman.toml`: flat or with one table per group, and a table `[pool.NAME]` for each pool beside `default`."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not valid TOML: {error}.") from error
    pools, wrong = _read_pools(document.pop("pool", {}), path)
    entries: list[_Entry] = []
    for key, value in document.items():
        if key in groups() and isinstance(value, dict):
            table = cast("dict[str, object]", value)
            entries += (_Entry(inner, setting, table=key) for inner, setting in table.items())
        else:
            entries.append(_Entry(key, value))
    if problems := (*_entry_problems(entries, path), *wrong):
        return Source({}, problems)
    found = {
        entry.key.upper(): Found(entry.value, Origin.FILE, entry.key, str(path))
        for entry in entries
        if entry.value != ""
    }
    return Source(found, pools=pools)


def _entry_problems(entries: Sequence[_Entry], path: Path) -> Iterator[str]:
    keys = [entry.key for entry in entries]
    for entry in entries:
        setting = ACCEPTED.get(entry.key.upper()) if entry.key.islower() else None
        if setting is None:
            known = [name.lower() for name in ACCEPTED]
            guess = hint(entry.key.lower(), known if entry.table else [*known, *groups()])
            yield f"{entry.key} in {path} is not a setting{guess}"
        elif entry.table not in (None, setting.group):
            yield f"{entry.key} in {path} stands under [{entry.table}] but belongs under [{setting.group}]."
        elif entry.table is not None and keys.count(entry.key) > 1:
            yield f"{entry.key} in {path} is given twice: at the top and under [{entry.table}]."


def _read_pools(tables: object, path: Path) -> tuple[Mapping[str, Mapping[str, Found]], tuple[str, ...]]:
    """The settings of each pool, and what is wrong with them."""
    if not isinstance(tables, dict):
        return {}, (f"pool in {path} must be tables of the form [pool.NAME].",)
    named = cast("dict[str, object]", tables)
    problems = tuple(
        problem for name, table in named.items() for problem in _pool_problems(name, table, path)
    )
    if problems:
        return {}, problems
    pools: dict[str, Mapping[str, Found]] = {}
    for name, table in named.items():
        where = f"[pool.{name}] of {path}"
        own = cast("dict[str, object]", table)
        pools[name] = {key.upper(): Found(value, Origin.FILE, key, where) for key, value in own.items()}
    return pools, ()


def _pool_problems(name: str, table: object, path: Path) -> Iterator[str]:
    if name == DEFAULT_POOL:
        yield f"[pool.{DEFAULT_POOL}] in {path}: its settings stand at the top of the file, without a pool."
        return
    try:
        check_name("the name of a pool", name, 128)
    except InvalidRequest as error:
        yield f"[pool.{name}] in {path}: {error}."
        return
    if not isinstance(table, dict):
        yield f"pool.{name} in {path} must be a table of settings."
        return
    for key in cast("dict[str, object]", table):
        if key.upper() in SHARED:
            yield f"{key} in [pool.{name}] of {path} is for all pools together: set it at the top of the file."
        elif key.upper() not in OWN or not key.islower():
            guess = hint(key.lower(), [own.lower() for own in OWN])
            yield f"{key} in [pool.{name}] of {path} is not a setting that a pool has{guess}"
