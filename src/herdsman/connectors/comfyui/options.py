"""Where a ComfyUI is and how it is treated, checked before anything is asked of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import cast
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from herdsman.errors import InvalidSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ComfyUIOptions:
    url: str
    """http://HOST:PORT, with the path of a proxy where there is one."""
    timeout_s: float = 5.0
    """For each request; a file may take longer as long as it moves."""
    headers: Mapping[str, SecretStr] = field(default_factory=dict[str, SecretStr])
    """For a proxy that asks who we are; ComfyUI itself never does."""
    max_previews: int = 20
    """For each job; 0 for none."""
    preview_interval_s: float = 2.0
    free_between_models: bool = True
    """A job that names another model than the last one finds the memory empty."""
    allow_partial: bool = False
    """A workflow runs even if ComfyUI drops some of its outputs as invalid."""
    upload_limit_mb: int = 100
    """ComfyUI's own limit, unless it was started with another."""
    ws_max_size_mb: int = 64
    """The largest message; images that come through the socket are one message each."""

    def __post_init__(self) -> None:
        _check_url(self.url)
        _check_headers(self.headers)
        for name in ("timeout_s", "upload_limit_mb", "ws_max_size_mb"):
            _check_number(name, getattr(self, name), above_zero=True)
        for name in ("max_previews", "preview_interval_s"):
            _check_number(name, getattr(self, name), above_zero=False)
        for name in ("free_between_models", "allow_partial"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidSettings(f"the option {name} must be true or false, and not {value!r}")

    @property
    def base_url(self) -> str:
        return self.url.rstrip("/")

    @property
    def socket_url(self) -> str:
        return f"ws{self.base_url.removeprefix('http')}/ws"

    def plain_headers(self) -> dict[str, str]:
        """For the wire, and for nothing else."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}


def read_options(given: Mapping[str, object]) -> ComfyUIOptions:
    """From a file or the environment, where everything is plain."""
    known = [each.name for each in fields(ComfyUIOptions)]
    for name in given:
        if name not in known:
            raise InvalidSettings(f"ComfyUI has no option {name!r}; it has: {', '.join(known)}")
    if "url" not in given:
        raise InvalidSettings("the option url is missing: it must say where ComfyUI is, http://HOST:PORT")
    values = dict(given)
    if "headers" in values:
        values["headers"] = _secret(values["headers"])
    # Each field checks its own type, since anything can stand in a file.
    return ComfyUIOptions(**values)  # pyright: ignore[reportArgumentType]


def _secret(headers: object) -> Mapping[str, SecretStr]:
    if not isinstance(headers, Mapping):
        raise InvalidSettings("the option headers must be an object of names and texts")
    hidden: dict[str, SecretStr] = {}
    for name, value in cast("Mapping[object, object]", headers).items():
        if not isinstance(value, str | SecretStr):
            raise InvalidSettings(f"the option headers must hold texts, and that of {str(name)!r} is none")
        hidden[str(name)] = value if isinstance(value, SecretStr) else SecretStr(value)
    return MappingProxyType(hidden)


def _check_url(url: object) -> None:
    if not isinstance(url, str):
        raise InvalidSettings(f"the option url must be a text like http://HOST:PORT, and not {url!r}")
    try:
        address: SplitResult | None = urlsplit(url)
        _ = address.port
    except ValueError:
        address = None
    if address is None or address.scheme not in {"http", "https"} or not address.hostname:
        raise InvalidSettings(f"the option url must be http://HOST:PORT or https://HOST, and not {url!r}")
    if "@" in address.netloc:
        raise InvalidSettings("the option url must not hold a user or a password: put it into headers")
    if address.query or address.fragment:
        raise InvalidSettings(f"the option url must end with its path, without ? or #, and not {url!r}")


def _check_headers(headers: Mapping[str, SecretStr]) -> None:
    for name, value in headers.items():
        text = value.get_secret_value()
        if not name.isascii() or not name.isprintable() or not name or any(each in name for each in " :"):
            raise InvalidSettings(f"the option headers holds {name!r}, which is no name of a header")
        if not text.isascii() or not text.isprintable():
            raise InvalidSettings(f"the option headers holds odd characters in the value of {name!r}")


def _check_number(name: str, value: object, *, above_zero: bool) -> None:
    number = -1 if isinstance(value, bool) or not isinstance(value, int | float) else value
    if not 0 <= number < 1e9 or (above_zero and number == 0):
        least = "above 0" if above_zero else "0 or more"
        raise InvalidSettings(f"the option {name} must be a number, {least}, and not {value!r}")
