"""Kinds of values: what each allows, how it may be shown, and the base of every group of settings."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, Literal, cast
from urllib.parse import unquote, urlsplit

from platformdirs import user_data_path
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

_MOST = 1_000_000_000
_TEN_YEARS_SEC = 315_360_000


def plain(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Kind:
    allowed: str
    """Completes "NAME must be ..."."""
    shown: Callable[[object], object] = plain
    """The value as anyone may see it, in a form that JSON can hold."""
    secret: bool = False
    """It may also be given as `NAME_FILE`, the path of a file that holds it."""


@dataclass(frozen=True, slots=True)
class DefaultText:
    """Says in words what the default is, where that depends on the machine or on another setting."""

    text: str


def _no_switch(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true is not a number")  # noqa: TRY004  pydantic collects a ValueError only
    return value


_NUMBER = BeforeValidator(_no_switch)

Count = Annotated[int, _NUMBER, Field(ge=0, le=_MOST), Kind("a whole number from 0 to 1000000000")]
Positive = Annotated[int, _NUMBER, Field(ge=1, le=_MOST), Kind("a whole number from 1 to 1000000000")]
Port = Annotated[int, _NUMBER, Field(ge=0, le=65_535), Kind("a port from 0 to 65535")]
Ratio = Annotated[float, _NUMBER, Field(gt=0, le=_MOST), Kind("a number above 0, up to 1000000000")]
Share = Annotated[float, _NUMBER, Field(ge=0, le=1), Kind("a number from 0 to 1")]
Percent = Annotated[float, _NUMBER, Field(ge=0, le=100), Kind("a number from 0 to 100")]
Seconds = Annotated[
    float, _NUMBER, Field(gt=0, le=_TEN_YEARS_SEC), Kind("a number of seconds above 0, up to ten years")
]
SecondsOrZero = Annotated[
    float, _NUMBER, Field(ge=0, le=_TEN_YEARS_SEC), Kind("a number of seconds from 0 to ten years")
]
Milliseconds = Annotated[
    int, _NUMBER, Field(ge=1, le=_MOST), Kind("a whole number of milliseconds from 1 to 1000000000")
]
Minutes = Annotated[
    float, _NUMBER, Field(gt=0, le=_TEN_YEARS_SEC / 60), Kind("a number of minutes above 0, up to ten years")
]
Days = Annotated[int, _NUMBER, Field(ge=0, le=36_500), Kind("a whole number of days, from 0 (for ever) to 36500")]
DaysOfAWeek = Annotated[int, _NUMBER, Field(ge=0, le=7), Kind("a whole number of days from 0 to 7")]
Money = Annotated[float | None, _NUMBER, Field(ge=0, le=_MOST), Kind("an amount of US dollars from 0 to 1000000000")]
Switch = Annotated[bool, Kind("true or false")]


HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_SECRET_PARAMETER = re.compile(r"(pass|pwd|secret|token|key)[^=]*=", re.IGNORECASE)

DRIVERS = {
    "sqlite": ("sqlite",),
    "postgresql+psycopg": ("postgres", "postgresql", "postgresql+psycopg"),
    "mysql+pymysql": ("mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"),
}


def default_database_url() -> str:
    return f"sqlite:///{user_data_path('herdsman', appauthor=False) / 'herdsman.db'}"


def database_url(text: str) -> str:
    """The URL with the driver we use; `ValueError` for a database that we cannot run on."""
    scheme, separator, rest = text.strip().partition("://")
    driver = next((driver for driver, names in DRIVERS.items() if scheme.lower() in names), None)
    if driver is None or not separator:
        raise ValueError("unsupported database")
    if driver == "sqlite" and not rest.lstrip("/"):
        raise ValueError("no file")
    return f"{driver}://{rest}"


def only_from_here(url: str) -> bool:
    """Whether another machine that calls it reaches itself, or nobody."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def hide_password(url: str) -> str:
    """The URL with every password replaced; a text that is no URL is hidden as a whole.

    A password that nobody escaped may hold any character, so all from the first colon to the last `@` is
    taken for it: a host is hidden too often rather than a password shown once.
    """
    scheme = _SCHEME.match(url)
    if scheme is None:
        return HIDDEN
    user, at, place = url[scheme.end() :].rpartition("@")
    name, colon, _ = user.partition(":")
    path, mark, query = place.partition("?")
    pairs = (
        f"{pair.partition('=')[0]}={HIDDEN}" if _SECRET_PARAMETER.search(unquote(pair)) else pair
        for pair in query.split("&")
    )
    return f"{scheme[0]}{name}{colon}{HIDDEN if colon else ''}{at}{path}{mark}{'&'.join(pairs)}"


def _hidden(value: object) -> object:
    return "set (hidden)" if value else "not set"


def _url(value: object) -> object:
    if value is None:
        return None
    return hide_password(value.get_secret_value() if isinstance(value, SecretStr) else str(value))


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _redis(value: object) -> object:
    if isinstance(value, str) and not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("unsupported server")
    return value


def _callable(value: str | None) -> str | None:
    """One listens on 0.0.0.0; nobody can be found there."""
    if value is not None and urlsplit(value).hostname in ("0.0.0.0", "::"):  # noqa: S104
        raise ValueError("no address of anybody")
    return value


Text = Annotated[str, Field(min_length=1, max_length=4096), Kind("a text")]
OptionalText = Annotated[str | None, Field(min_length=1, max_length=4096), Kind("a text")]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split), Kind("texts separated by commas")]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...],
    BeforeValidator(_split),
    Kind("whole numbers from 1 to 1000000, separated by commas"),
]
Level = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    BeforeValidator(lower),
    Kind("debug, info, warning, error or critical"),
]

Secret = Annotated[SecretStr | None, Kind("a text", _hidden, secret=True)]
SecretMap = Annotated[
    Mapping[str, SecretStr],
    BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value),
    Kind('a JSON object of texts, such as {"NAME": "value"}', _hidden, secret=True),
]
DatabaseUrl = Annotated[
    SecretStr,
    BeforeValidator(lambda value: database_url(value) if isinstance(value, str) else value),
    Kind(
        "sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME, mysql://USER:PASSWORD@HOST/NAME"
        " or mariadb://USER:PASSWORD@HOST/NAME",
        _url,
        secret=True,
    ),
]
WebUrl = Annotated[
    str | None,
    Field(pattern=r"^https?://[^/\s]+", repr=False),  # it may hold a password
    AfterValidator(_callable),
    Kind("a URL that begins with https:// or http://, of an address that can be called (not 0.0.0.0)", _url),
]
RedisUrl = Annotated[
    SecretStr | None,
    BeforeValidator(_redis),
    Kind("redis://USER:PASSWORD@HOST/NUMBER, rediss://... or unix://PATH", _url, secret=True),
]


class Group(BaseModel):
    """Settings on one subject. A field's name in capitals is the variable that a person types.

    A plain model rather than a `BaseSettings`, so that building one never looks at the environment:
    `load_settings` alone does.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False, defer_build=True
    )


def setting(default: object, description: str) -> Any:
    return Field(default=default, description=description)
