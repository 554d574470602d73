"""The files of the dashboard, read once and kept in memory, plain and compressed."""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

PAGE = "index.html"
CHARTS = "vendor/chart.js"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    content_type: str
    plain: bytes
    compressed: bytes
    tag: str
    """Weak: the same for both, since they are the same when read."""

    @staticmethod
    def of(name: str, content: bytes) -> "Asset":
        return Asset(
            content_type=_TYPES[name.rpartition(".")[2]],
            plain=content,
            compressed=gzip.compress(content, mtime=0),
            tag=f'W/"{sha256(content).hexdigest()[:32]}"',
        )


@cache
def assets() -> Mapping[str, Asset]:
    """By name. Only what is in this table is served, so a path cannot lead anywhere else."""
    return {name: Asset.of(name, found.read_bytes()) for name, found in _found()}


def _found() -> Iterator[tuple[str, Traversable]]:
    yield from _inside(files("herdsman.api.dashboard") / "static")
    charts = _charts()
    if charts is not None:
        yield CHARTS, charts


def _inside(folder: Traversable, before: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _inside(each, f"{before}{each.name}/")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield before + each.name, each


def _charts() -> Traversable | None:
    """Chart.js, from the package that carries it; without it the pages say in words what a plot would show."""
    try:
        found = files("chartkick") / "django" / "static" / "chartkick" / "Chart.bundle.js"
    except ModuleNotFoundError:
        return None
    return found if found.is_file() else None
