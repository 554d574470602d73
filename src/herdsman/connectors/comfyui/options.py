"""Where a ComfyUI is and how it is treated, checked before anything is asked of it."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from herdsman.connectors.registry import Options


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
