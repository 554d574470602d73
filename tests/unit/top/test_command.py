"""What `herdsman top` loads, and what it says where that is not there."""

import subprocess
import sys

LOADED = "import sys, herdsman.cli.top.command; print('textual' in sys.modules)"
LACKING = """
import sys
sys.modules["textual"] = None
from herdsman.cli.top.command import _watch
from herdsman.errors import InvalidSettings
try:
    _watch(None, "", None)
except InvalidSettings as error:
    print(error)
"""


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_a_frame_as_text_needs_no_textual() -> None:
    assert said(LOADED) == "False\n"


def test_without_textual_it_says_what_to_do() -> None:
    assert said(LACKING) == (
        "herdsman top needs the package textual, which is not installed here:"
        " install herdsman[server], or print one frame with herdsman top --once\n"
    )
