"""Where a ComfyUI is and how it is treated, checked before anything is asked of it."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, cast
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from herdsman.connectors.registry import Options

_ARRAY = re.compile(r"\b(tensor|array)\(")
# Folders and a name. Not what follows a letter or a colon: those are fractions, words and addresses.
_PATH = re.compile(r"(?<![\w:/.\\])(?:[A-Za-z]:[\\/]|/)(?:[^\s\\/'\"<>|:]+[\\/])+([^\s\\/'\"<>|:]*)")


def as_object(value: object) -> Mapping[str, object]:
    """Empty where it is something else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    """Empty where it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def item(value: object, at: int) -> object:
    """One of a list; None where there is none."""
    items = as_list(value)
    return items[at] if -len(items) <= at < len(items) else None


def as_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def as_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def without_insides(text: str) -> str:
    """What a service says of itself, without the folders of its machine and without whole tensors."""
    kept, at = "", 0
    while (found := _ARRAY.search(text, at)) is not None:
        end = _closing(text, found.end())
        kept += f"{text[at : found.end()]}…" + (")" if end < len(text) else "")
        at = end + 1
    without_arrays = kept + text[at:]
    return _PATH.sub(r"…/\1", without_arrays)


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` is closed; the length where it is not."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return len(text)


def _check_url(url: str) -> str:
    try:
        address: SplitResult | None = urlsplit(url)
        _ = address.port
    except ValueError:
        address = None
    if address is None or address.scheme not in {"http", "https"} or not address.hostname:
        raise ValueError(f"it must be http://HOST:PORT or https://HOST, and not {url!r}")
    if "@" in address.netloc:
        raise ValueError("it must not hold a user or a password: put it into headers")
    if address.query or address.fragment:
        raise ValueError(f"it must end with its path, without ? or #, and not {url!r}")
    return url


def _check_headers(headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    for name, value in headers.items():
        text = value.get_secret_value()
        if not name.isascii() or not name.isprintable() or not name or any(each in name for each in " :"):
            raise ValueError(f"it holds {name!r}, which is no name of a header")
        if not text.isascii() or not text.isprintable():
            raise ValueError(f"it holds odd characters in the value of {name!r}")
    return headers


Above0 = Field(gt=0, lt=1e9)


class ComfyUIOptions(Options):
    model_config = ConfigDict(strict=True)

    url: Annotated[str, AfterValidator(_check_url)]
    """http://HOST:PORT, with the path of a proxy where there is one."""
    timeout_s: Annotated[float, Above0] = 5.0
    """For each request; a file may take longer as long as it moves."""
    headers: Annotated[Mapping[str, SecretStr], AfterValidator(_check_headers)] = Field(
        default_factory=dict[str, SecretStr]
    )
    """For a proxy that asks who we are; ComfyUI itself never does."""
    max_previews: Annotated[int, Field(ge=0)] = 20
    """For each job; 0 for none."""
    preview_interval_s: Annotated[float, Field(ge=0, lt=1e9)] = 2.0
    free_between_models: bool = True
    """A job that names another model than the last one finds the memory empty."""
    allow_partial: bool = False
    """A workflow runs even if ComfyUI drops some of its outputs as invalid."""
    upload_limit_mb: Annotated[int, Above0] = 100
    """ComfyUI's own limit, unless it was started with another."""
    ws_max_size_mb: Annotated[int, Above0] = 64
    """The largest message; images that come through the socket are one message each."""

    @property
    def base_url(self) -> str:
        return self.url.rstrip("/")

    @property
    def socket_url(self) -> str:
        return f"ws{self.base_url.removeprefix('http')}/ws"

    def plain_headers(self) -> dict[str, str]:
        """For the wire, and for nothing else."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}
