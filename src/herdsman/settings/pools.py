"""Pools beside `default`: a table `[pool.NAME]` of the configuration file, with what is different there."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from herdsman.core.errors import InvalidRequest
from herdsman.core.model import DEFAULT_POOL
from herdsman.core.request import check_name
from herdsman.settings.catalogue import CATALOGUE
from herdsman.settings.model import Origin
from herdsman.settings.names import hint
from herdsman.settings.sources import Found

GROUPS = ("scaling", "breaker", "health", "runpod")
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
OWN = tuple(name for name, each in CATALOGUE.items() if each.group in GROUPS and name not in SHARED)
"""What a pool may have of its own."""


def read_pools(tables: object, path: Path) -> tuple[Mapping[str, Mapping[str, Found]], tuple[str, ...]]:
    """The settings of each pool, and what is wrong with them."""
    if not isinstance(tables, dict):
        return {}, (f"pool in {path} must be tables of the form [pool.NAME].",)
    named = cast("dict[str, object]", tables)
    problems = tuple(problem for name, table in named.items() for problem in _problems(name, table, path))
    if problems:
        return {}, problems
    return {name: _found(name, cast("dict[str, object]", table), path) for name, table in named.items()}, ()


def _found(name: str, table: Mapping[str, object], path: Path) -> Mapping[str, Found]:
    where = f"[pool.{name}] of {path}"
    return {key.upper(): Found(value, Origin.FILE, key, where) for key, value in table.items()}


def _problems(name: str, table: object, path: Path) -> Iterator[str]:
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
