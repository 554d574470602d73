"""Versions of the programs that speak with each other: only the first two numbers of one matter."""

import re
from collections.abc import Mapping

VERSION = "herdsman_version"
"""Under which the row of a worker has the version of its program."""
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})[0-9A-Za-z.+]{0,50}", re.ASCII)


def release(version: str) -> tuple[int, int] | None:
    """None for what is no version of ours."""
    found = _RELEASE.fullmatch(version)
    return None if found is None else (int(found[1]), int(found[2]))


def differ(one: str, other: str) -> bool:
    """What cannot be read differs from nothing."""
    releases = release(one), release(other)
    return None not in releases and releases[0] != releases[1]


def misfit(metadata: Mapping[str, object], server: str) -> str | None:
    """What is to be said of a worker whose program is of another release than the server."""
    here = metadata.get(VERSION)
    if not isinstance(here, str) or not differ(here, server):
        return None
    return f"it runs Herdsman {here}, the server {server}: upgrade the older one, and start the worker anew"
