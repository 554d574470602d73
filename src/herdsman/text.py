"""Text that somebody else wrote, as it may stand in a terminal or a log: nothing in it is obeyed.

A job's output, an error, a name or a service's answer may hold characters that set a terminal's title, clear its
screen, go back to the begin of the line, or turn the order of letters around. They are shown as JSON writes them, such as
`\u001b`, so that what was written can be read, and JSON stays the same JSON.
"""

import json
import re
from collections.abc import Mapping

_OBEYED = re.compile(
    "["
    "\x00-\x08\x0a-\x1f\x7f-\x9f"  # C0 without the tab, DEL, C1: escapes, bells, returns
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # they turn the direction of writing
    "\u2028\u2029\ufff9-\ufffb"  # other ends of lines, annotations
    "\U000e0000-\U000e007f"  # letters that cannot be seen
    "\ud800-\udfff"  # half a character, which no stream can write
    "]"
)


def printable(text: str) -> str:
    """On one line, whatever it holds."""
    return _OBEYED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def printable_lines(text: str) -> str:
    """The same for text of several lines: their ends stay ends of lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def one_line(text: str, longest: int) -> str:
    """What a service said, for a sentence of ours: each stretch of blanks and odd characters is one blank, and it is cut."""
    shown = "".join(each if each.isprintable() else " " for each in text[: 4 * longest])
    line = " ".join(shown.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def spoken(seconds: float) -> str:
    """`0.4 s`, `42 s`, `7 min 5 s`, `3 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
