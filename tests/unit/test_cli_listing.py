"""Lists: what a table, a wide one and a document show, and to whom."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from herdsman.cli.listing import Listing, show
from herdsman.cli.output import Layout
from herdsman.errors import Unreachable


def a_listing(**changed: object) -> Listing:
    values: dict[str, object] = {
        "document": {"sheep": [{"name": "dolly"}]},
        "columns": ("SHEEP", "STATUS", "+WOOL"),
        "rows": [("dolly", "active", "white")],
        "empty": "no sheep; get one",
        "then": "herdsman shear dolly",
    }
    return Listing(**{**values, **changed})  # pyright: ignore[reportArgumentType]


def printed(capsys: pytest.CaptureFixture[str], listing: Listing, layout: Layout) -> str:
    show(lambda: listing, layout)
    return capsys.readouterr().out


def test_a_table_leaves_out_what_is_only_for_the_wide(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, a_listing(), Layout.TABLE).splitlines()
    assert [line.split() for line in lines] == [["SHEEP", "STATUS"], ["dolly", "active"]]
    lines = printed(capsys, a_listing(), Layout.WIDE).splitlines()
    assert [line.split() for line in lines] == [["SHEEP", "STATUS", "WOOL"], ["dolly", "active", "white"]]


def test_a_document_is_a_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(capsys, a_listing(), Layout.JSON)) == {"sheep": [{"name": "dolly"}]}


def test_an_empty_list_says_how_to_fill_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, a_listing(rows=()), Layout.TABLE) == "no sheep; get one\n"


def test_more_is_pointed_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert "more: the same command with --after x\n" in printed(capsys, a_listing(next="x"), Layout.TABLE)


def test_a_long_line_is_not_broken_where_no_screen_limits_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = "e" * 250
    assert error in printed(capsys, a_listing(rows=[("dolly", "error", error)]), Layout.WIDE)


PROGRAM = """
import signal
from tests.unit.test_cli_listing import a_listing
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests in the background ignores it
from herdsman.cli.listing import show
from herdsman.cli.output import Layout
show(lambda: a_listing(), Layout.TABLE, watch={watch})
"""


def on_a_terminal(program: str, enough: int | None = None, **environment: str) -> str:
    """What a person at a terminal sees: all of it, or so many sheep until Ctrl-C."""
    master, slave = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environment}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=surroundings) as process:
        os.close(slave)
        seen, deadline = "", time.monotonic() + 60
        while (enough is None or seen.count("dolly") < enough) and time.monotonic() < deadline:
            try:
                seen += os.read(master, 65536).decode()
            except OSError:  # it has ended
                break
        if enough is not None:
            process.send_signal(signal.SIGINT)
        try:
            status = process.wait(30)
        finally:
            process.kill()
    os.close(master)
    assert status == 0, seen
    return seen


def test_a_person_at_a_terminal_sees_colours_and_what_to_type_next() -> None:
    seen = on_a_terminal(PROGRAM.format(watch=False))
    assert "\x1b[32mactive" in seen
    assert "next: herdsman shear dolly" in seen


def test_no_color_is_obeyed() -> None:
    seen = on_a_terminal(PROGRAM.format(watch=False), NO_COLOR="1")
    assert "\x1b[32m" not in seen
    assert "next: herdsman shear dolly" in seen


def test_watching_redraws_in_place_on_a_terminal_until_ctrl_c() -> None:
    seen = on_a_terminal(PROGRAM.format(watch=True), enough=4)
    assert "\x1b[1A" in seen, "the cursor goes up again"


def test_watching_appends_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([a_listing(), Unreachable("the server is away"), a_listing(rows=[("molly", "active", "")])])

    def look() -> Listing:
        found = next(looks, KeyboardInterrupt())
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr("herdsman.cli.listing.EVERY", timedelta(0))
    show(look, Layout.TABLE, watch=True)
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()] == ["SHEEP", "dolly", "SHEEP", "molly"]
    assert said.err == "the server is away; trying again\n"
