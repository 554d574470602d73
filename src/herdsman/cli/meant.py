"""What may have been meant by a word that is slightly wrong."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

import typer

_NOT_ONE_OF = re.compile(r"^(?:Value error, )?('(.*)' is not one of (.+?))\.?$", re.DOTALL)


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, to be put behind a sentence; nothing where nothing is near."""
    near = get_close_matches(typed, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def with_what_was_meant(error: typer.BadParameter) -> typer.BadParameter:
    """The word of a choice that is near, behind the list of all of them."""
    found = _NOT_ONE_OF.match(error.message)
    if found is not None:
        error.message = found[1] + did_you_mean(found[2], re.findall(r"'([^']+)'", found[3]))
    return error
