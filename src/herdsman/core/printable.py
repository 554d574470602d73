"""Text that somebody else wrote, as it may stand in a terminal or a log: nothing in it is obeyed.

A job's output, an error, a name or a service's answer may hold characters that set a terminal's title, clear its
screen, go back to the begin of the line, or turn the order of letters around. They are shown as JSON writes them, such as
`\\u001b`, so that what was written can be read, and JSON stays the same JSON.
"""

import json
import re

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
    return _OBEYED.sub(_written, text)


def printable_lines(text: str) -> str:
    """The same for text of several lines: their ends stay ends of lines."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _written(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
