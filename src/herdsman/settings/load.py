"""From the environment, `.env` and `herdsman.toml` to checked settings, or to sentences on what is wrong with them."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

from pydantic import ValidationError

from herdsman.errors import InvalidRequest, InvalidSettings
from herdsman.ids import DEFAULT_POOL, check_name
from herdsman.settings import model
from herdsman.settings.kinds import Group
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
OWN = tuple(name for name, each in model.CATALOGUE.items() if each.group in _OF_POOLS and name not in SHARED)
"""What a pool may have of its own."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one place says about a setting, before anyone judges the value."""

    value: object
    origin: model.Origin
    spelled: str
    """The name as it was typed: with or without the prefix, in capitals or not."""
    where: str
    """Where a person would look for it."""

    @property
    def prefixed(self) -> bool:
        return self.spelled.startswith(model.PREFIX)


@dataclass(frozen=True, slots=True)
class Source:
    found: Mapping[str, Found]
    """By accepted name, without the prefix."""
    problems: tuple[str, ...] = ()
    pools: Mapping[str, Mapping[str, Found]] = field(default_factory=dict[str, Mapping[str, Found]])
    """What only one pool lives by; only the configuration file knows pools."""


def load_settings(
    env: Mapping[str, str] | None = None, cwd: Path | None = None, *, given: Mapping[str, str] | None = None
) -> model.Settings:
    """The settings in force here. Nothing else in the program looks at the environment.

    `given` stands above the environment: what a person wrote on the command line.

    Raises `InvalidSettings` with one line per problem; a secret is in none of them.
    """
    variables = {**(os.environ if env is None else env), **(given or {})}
    cwd = Path.cwd() if cwd is None else cwd
    dotenv = _read_dotenv(cwd / ".env")
    named = variables.get(model.CONFIG_FILE) or dotenv.get(model.CONFIG_FILE)
    config_file = cwd / (named or "herdsman.toml")
    sources = (
        _from_variables(variables, model.Origin.ENVIRONMENT, "the environment"),
        _from_variables(dotenv, model.Origin.DOTENV, str(cwd / ".env")),
        _read_config_file(config_file) if named or config_file.is_file() else Source({}),
    )
    # The first source has the first say. Only a file that counts is opened.
    chosen = {setting.name: _choose(setting, sources, cwd) for setting in model.CATALOGUE.values()}
    found = {name: choice for name, choice in chosen.items() if isinstance(choice, Found)}
    problems = [problem for source in sources for problem in source.problems]
    problems += [choice for choice in chosen.values() if isinstance(choice, str)]
    settings = _checked(found, problems)
    pools: dict[str, model.Settings] = {}
    for name, own in sources[-1].pools.items():
        try:
            pools[name] = _checked({**found, **own})
        except InvalidSettings as error:
            lines = (f"pool {name}: {line}" for line in str(error).splitlines())
            raise InvalidSettings("\n".join(lines)) from error
    return settings.model_copy(update={"by_pool": MappingProxyType(pools)})


def _checked(found: Mapping[str, Found], problems: Sequence[str] = ()) -> model.Settings:
    built: dict[str, Group] = {}
    wrong = list(problems)
    for name, group in model.groups().items():
        members = [each for each in model.CATALOGUE.values() if each.group == name and each.name in found]
        try:
            # A group of defaults needs no schema, and building one takes a while.
            given = {each.key: found[each.name].value for each in members}
            built[name] = group.model_validate(given) if given else group.model_construct()
        except ValidationError as error:
            # One for each value that was refused: a default that waits for it is refused too, but is no news.
            details = error.errors(include_input=False, include_context=False)
            refused = {str(detail["loc"][0]) for detail in details}
            for setting in (each for each in members if each.key in refused):
                here = found[setting.name]
                text = str(setting.kind.shown(here.value))
                text = text if text.isprintable() else ascii(text)
                shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
                wrong.append(f"{here.spelled} must be {setting.kind.allowed}, but is {shown} in {here.where}.")
    if not wrong:
        origins = {name: each.origin for name, each in found.items()}
        settings = model.Settings.model_construct(None, **built, origins=origins)
        wrong = list(broken(settings))
        if not wrong:
            return settings
    raise InvalidSettings("\n".join(wrong))


def _choose(setting: model.Setting, sources: Sequence[Source], cwd: Path) -> Found | str | None:
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


def _open(by_file: Found, setting: model.Setting, cwd: Path) -> Found | str:
    """A secret may be given as the path of a file that holds it."""
    path = cwd / str(by_file.value)
    named = f"{path}, the file that {by_file.spelled} in {by_file.where} names,"
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_SECRET + 1).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not text"
        return f"{named} cannot be read: {said}."
    if not text or len(text) > _LONGEST_SECRET:
        return f"{named} must hold from 1 to {_LONGEST_SECRET} characters."
    return replace(by_file, value=text, spelled=setting.name, where=str(path))


def _read_dotenv(path: Path) -> Mapping[str, str | None]:
    if not path.is_file():
        return {}
    from pydantic_settings import BaseSettings, DotEnvSettingsSource  # noqa: PLC0415  (takes a while to import)

    try:
        return DotEnvSettingsSource(BaseSettings, env_file=path, case_sensitive=True).env_vars
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{path} is not valid UTF-8.") from error


def _from_variables(variables: Mapping[str, str | None], origin: model.Origin, where: str) -> Source:
    """A variable that is set to nothing counts as not set, since that is how many tools unset one."""
    given = {name: value for name, value in variables.items() if value}
    known = (model.CONFIG_FILE, *(f"{model.PREFIX}{name}" for name in model.ACCEPTED))
    problems = tuple(
        f"{name} in {where} is not a setting{model.hint(name, known)}"
        for name in sorted(given)
        if model.is_unknown(name)
    )
    found: dict[str, Found] = {}
    for name in model.ACCEPTED:
        spelled = next((each for each in (f"{model.PREFIX}{name}", name) if each in given), None)
        if spelled is not None:
            found[name] = Found(given[spelled], origin, spelled, where)
    return Source(found, problems)


def _read_config_file(path: Path) -> Source:
    """`herdsman.toml`: flat or with one table per group, and a table `[pool.NAME]` for each pool beside `default`."""
    import tomllib  # noqa: PLC0415  (takes a while to import)

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{path} is not valid TOML: {error}.") from error
    pools, wrong_pools = _read_pools(document.pop("pool", {}), path)
    entries: list[tuple[str, object, str | None]] = []
    for key, value in document.items():
        if key in model.groups() and isinstance(value, dict):
            table = cast("dict[str, object]", value)
            entries += ((inner, given, key) for inner, given in table.items())
        else:
            entries.append((key, value, None))
    times = Counter(key for key, _, _ in entries)
    found: dict[str, Found] = {}
    problems: list[str] = []
    for key, value, group in entries:
        setting = model.ACCEPTED.get(key.upper()) if key.islower() else None
        if setting is None:
            known = [name.lower() for name in model.ACCEPTED]
            guess = model.hint(key.lower(), known if group else [*known, *model.groups()])
            problems.append(f"{key} in {path} is not a setting{guess}")
        elif group not in (None, setting.group):
            problems.append(f"{key} in {path} stands under [{group}] but belongs under [{setting.group}].")
        elif group is not None and times[key] > 1:
            problems.append(f"{key} in {path} is given twice: at the top and under [{group}].")
        elif value != "":
            found[key.upper()] = Found(value, model.Origin.FILE, key, str(path))
    if problems or wrong_pools:
        return Source({}, (*problems, *wrong_pools))
    return Source(found, pools=pools)


def _read_pools(tables: object, path: Path) -> tuple[Mapping[str, Mapping[str, Found]], list[str]]:
    """The settings of each pool, and what is wrong with them."""
    if not isinstance(tables, dict):
        return {}, [f"pool in {path} must be tables of the form [pool.NAME]."]
    pools: dict[str, Mapping[str, Found]] = {}
    problems: list[str] = []
    for name, table in cast("dict[str, object]", tables).items():
        if name == DEFAULT_POOL:
            text = f"[pool.{DEFAULT_POOL}] in {path}: its settings stand at the top of the file, without a pool."
            problems.append(text)
            continue
        try:
            check_name("the name of a pool", name, 128)
        except InvalidRequest as error:
            problems.append(f"[pool.{name}] in {path}: {error}.")
            continue
        if not isinstance(table, dict):
            problems.append(f"pool.{name} in {path} must be a table of settings.")
            continue
        where, own = f"[pool.{name}] of {path}", cast("dict[str, object]", table)
        for key in own:
            if key.upper() in SHARED:
                problems.append(f"{key} in {where} is for all pools together: set it at the top of the file.")
            elif key.upper() not in OWN or not key.islower():
                guess = model.hint(key.lower(), [each.lower() for each in OWN])
                problems.append(f"{key} in {where} is not a setting that a pool has{guess}")
        pools[name] = {key.upper(): Found(value, model.Origin.FILE, key, where) for key, value in own.items()}
    return pools, problems
