"""What many failures have in common: the line that says what went wrong, without what differs each time."""

import re
from hashlib import sha256

LONGEST = 200
"""Of a cause, and of an example of it: it is a heading, and the whole error stands with the job."""

# Possessive: whoever writes an error must not make thousands of them slow to group.
_ID = re.compile(r"\b[0-9a-f]{8,}+\b(?:-[0-9a-f]{2,}+\b)*+", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_HEX = re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SPACES = re.compile(r"\s+")


def cause_of(head: str, tail: str) -> str:
    """What groups it with others like it."""
    return normalised(line_of(head, tail))


def line_of(head: str, tail: str) -> str:
    """The line that says what went wrong, from the beginning and the end of an error. A traceback says what happened
    last, everything else first."""
    traced = head.startswith("Traceback ") or '\n  File "' in f"\n{tail}"
    lines = [line.strip() for line in (tail if traced else head).splitlines() if line.strip()]
    if not lines:
        return "no error was told"
    return lines[-1] if traced else lines[0]


def normalised(line: str) -> str:
    """Ids and numbers become signs, so that the same fault of a hundred jobs is one."""
    line = _ID.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], _HEX.sub("#", line))
    return _SPACES.sub(" ", _NUMBER.sub("N", line)).strip()[:LONGEST]


def key_of(kind: str, failure_class: str | None, cause: str) -> str:
    """A short name for a group of failures, the same on every replica."""
    return sha256("\0".join((kind, failure_class or "", cause)).encode()).hexdigest()[:16]
