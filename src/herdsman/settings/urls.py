"""URLs that may hold a password: the forms we accept for a database, and how any of them is shown."""

import re
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from platformdirs import user_data_path

HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_SECRET_PARAMETER = re.compile(r"(pass|pwd|secret|token|key)[^=]*=", re.IGNORECASE)

_DATABASE_SCHEMES = {
    "sqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mysql+pymysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
}


def default_database_url() -> str:
    return f"sqlite:///{user_data_path('herdsman', appauthor=False) / 'herdsman.db'}"


def database_url(text: str) -> str:
    """The URL with the driver we use; `ValueError` for a database that we cannot run on."""
    scheme, separator, rest = text.strip().partition("://")
    driver = _DATABASE_SCHEMES.get(scheme.lower())
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
    return f"{scheme[0]}{name}{colon}{HIDDEN if colon else ''}{at}{_hide_parameters(place)}"


def _hide_parameters(place: str) -> str:
    path, mark, query = place.partition("?")
    return f"{path}{mark}{'&'.join(_hide_parameter(pair) for pair in query.split('&'))}"


def _hide_parameter(pair: str) -> str:
    return f"{pair.partition('=')[0]}={HIDDEN}" if _SECRET_PARAMETER.search(unquote(pair)) else pair
