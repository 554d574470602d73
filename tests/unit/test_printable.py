"""Foreign text is foreign: nothing in it reaches a terminal as a command."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.text import printable, printable_lines

TURNED = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b]0;mine\x07", "\\u001b]0;mine\\u0007"),
        ("\x1b[2J\x9b2J", "\\u001b[2J\\u009b2J"),
        ("done\rfail", "done\\rfail"),
        ("a\nb", "a\\nb"),
        ("safe\u202etxt.exe", "safe\\u202etxt.exe"),
        ("\udcff", "\\udcff"),
        ("tab\tand Grüße 日本語 👍 \\n", "tab\tand Grüße 日本語 👍 \\n"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(written: str, shown: str) -> None:
    assert printable(written) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("one\ntwo\r\n\x1b[Athree") == "one\ntwo\\r\n\\u001b[Athree"


@given(st.text(st.characters(codec=None)))
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    for letter in printable(text):
        assert letter == "\t" or unicodedata.category(letter) not in ("Cc", "Cs")
        assert letter not in TURNED


@given(st.dictionaries(st.text(), st.text()))
def test_json_stays_the_same_json(value: dict[str, str]) -> None:
    assert json.loads(printable_lines(json.dumps(value, ensure_ascii=False, indent=2))) == value


def test_text_that_python_calls_printable_is_printed_as_it_is() -> None:
    """`echo` looks no closer at such text."""
    every = "".join(letter for letter in map(chr, range(0x110000)) if letter.isprintable())
    assert printable(every) == every
