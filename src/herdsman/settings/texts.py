"""The kinds of value that are texts, lists, secrets and URLs."""

import json
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from herdsman.settings.kinds import Kind, plain
from herdsman.settings.urls import database_url, hide_password


def _hidden(value: object) -> object:
    return "set (hidden)" if value else "not set"


def _url(value: object) -> object:
    if value is None:
        return None
    return hide_password(value.get_secret_value() if isinstance(value, SecretStr) else str(value))


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _parse_json(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else value


def lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _database(value: object) -> object:
    return database_url(value) if isinstance(value, str) else value


def _redis(value: object) -> object:
    if isinstance(value, str) and not value.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("unsupported server")
    return value


def _callable(value: str | None) -> str | None:
    """One listens on 0.0.0.0; nobody can be found there."""
    if value is not None and urlsplit(value).hostname in ("0.0.0.0", "::"):  # noqa: S104
        raise ValueError("no address of anybody")
    return value


Text = Annotated[str, Field(min_length=1, max_length=4096), Kind("a text", plain)]
OptionalText = Annotated[str | None, Field(min_length=1, max_length=4096), Kind("a text", plain)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_split), Kind("texts separated by commas", plain)]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...],
    BeforeValidator(_split),
    Kind("whole numbers from 1 to 1000000, separated by commas", plain),
]
Level = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    BeforeValidator(lower),
    Kind("debug, info, warning, error or critical", plain),
]

Secret = Annotated[SecretStr | None, Kind("a text", _hidden, secret=True)]
SecretMap = Annotated[
    Mapping[str, SecretStr],
    BeforeValidator(_parse_json),
    Kind('a JSON object of texts, such as {"NAME": "value"}', _hidden, secret=True),
]
DatabaseUrl = Annotated[
    SecretStr,
    BeforeValidator(_database),
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
