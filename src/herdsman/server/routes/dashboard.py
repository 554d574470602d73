"""`/` and its parts, served from memory. Both are open to all: who has no token sees a form that asks for one."""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

from fastapi import APIRouter, Header
from fastapi.responses import Response

from herdsman.errors import NotFound
from herdsman.server.errors import Refused

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
    found = dict(_inside(files("herdsman.server") / "dashboard" / "static"))
    if (charts := _charts()) is not None:
        found[CHARTS] = charts
    return {name: Asset.of(name, each.read_bytes()) for name, each in found.items()}


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


router = APIRouter(tags=["dashboard"])

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self';"
    " font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Asked for again each time and answered with 304: modules of two versions never meet in one page.
    "Cache-Control": "no-cache",
}
_HTML = frozenset({"text/html", "text/*", "*/*"})
_Given = Annotated[str | None, Header(max_length=2000)]


@router.get("/", response_class=Response, include_in_schema=False)
def dashboard(accept: _Given = None, accept_encoding: _Given = None, if_none_match: _Given = None) -> Response:
    """The dashboard, for a browser."""
    if accept is not None and not _HTML & _named(accept):
        raise Refused(
            HTTPStatus.NOT_ACCEPTABLE,
            "not-acceptable",
            f"here is a page for browsers, as text/html, and {accept[:100]!r} was asked for;"
            " programs find what they may ask for at /openapi.json",
        )
    answer = _answer(assets()[PAGE], accept_encoding, if_none_match)
    answer.headers["vary"] = "Accept, Accept-Encoding"
    return answer


@router.get("/assets/{name}", response_class=Response, include_in_schema=False)
def dashboard_part(name: str, accept_encoding: _Given = None, if_none_match: _Given = None) -> Response:
    """A part of the dashboard."""
    return _part(name, accept_encoding, if_none_match)


@router.get("/assets/{folder}/{name}", response_class=Response, include_in_schema=False)
def dashboard_part_within(
    folder: str, name: str, accept_encoding: _Given = None, if_none_match: _Given = None
) -> Response:
    """A part of the dashboard that lies in a folder."""
    return _part(f"{folder}/{name}", accept_encoding, if_none_match)


def _part(name: str, accept_encoding: str | None, if_none_match: str | None) -> Response:
    found = assets().get(name)
    if found is None:
        raise NotFound(f"the dashboard has no part {name[:100]!r}")
    return _answer(found, accept_encoding, if_none_match)


def _answer(found: Asset, accept_encoding: str | None, if_none_match: str | None) -> Response:
    headers = {**_HEADERS, "ETag": found.tag, "Vary": "Accept-Encoding"}
    if found.tag in [each.strip() for each in (if_none_match or "").split(",")]:
        return Response(status_code=304, headers=headers)
    if {"gzip", "*"} & _named(accept_encoding or ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.compressed, headers=headers, media_type=found.content_type)
    return Response(found.plain, headers=headers, media_type=found.content_type)


def _named(given: str) -> set[str]:
    """What a header names, but for what it rules out with `q=0`."""
    choices = (each.partition(";") for each in given.lower().split(","))
    return {name.strip() for name, _, weight in choices if not _ruled_out(weight)}


def _ruled_out(weight: str) -> bool:
    name, _, value = weight.replace(" ", "").partition("=")
    return name == "q" and value.strip("0.") == "" and value != ""
