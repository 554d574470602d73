"""Tables as lines: they fit whatever terminal there is."""

from dataclasses import replace

import pytest
from rich.text import Text

from herdsman.cli.top.command import Column, JobAim, Row, Table, observe, tables, widths
from tests.support.top_fleet import a_held, a_job, a_worker
from tests.support.top_server import FakeServer


@pytest.mark.parametrize("width", [20, 79, 80, 100, 139, 300])
def test_a_line_is_exactly_as_wide_as_the_terminal(width: int) -> None:
    wide = a_job("羊" * 60, "failed", last_error="羊" * 200)
    for table in tables(observe(FakeServer(jobs=(wide, a_job("j", "done"))).client)):
        for line in (table.heading(width), *(table.line(row, width) for row in table.rows)):
            assert line.cell_len == width, line.plain


def test_a_wide_terminal_shows_longer_names_and_more_of_the_rest() -> None:
    columns = (Column("ID", 10, 40), Column("N", 5), Column("REST", 20))
    assert widths(columns, 79) == [10, 5, 62]
    assert widths(columns, 119) == [30, 5, 82]
    assert widths(columns, 200) == [40, 5, 153]


def test_a_filter_looks_at_whole_names_and_at_the_jobs_of_a_worker() -> None:
    held = a_held("the-job-with-a-very-long-name-0001", 0.5)
    workers = (a_worker("one", jobs=(held,)), a_worker("two", "spawning"))
    table = tables(observe(FakeServer(workers=workers).client))[1]
    assert [row.key for row in table.filtered("NAME-0001").rows] == ["one"]
    assert [row.key for row in table.filtered("  spawn ").rows] == ["two"]
    assert table.filtered(" ") is table
    assert table.filtered("sheep").empty == "nothing here contains 'sheep'"


def test_workers_that_were_left_off_are_counted() -> None:
    seen = observe(FakeServer().client)
    many = replace(seen, fleet=seen.fleet.model_copy(update={"more": 37}))
    assert tables(many)[1].heading(100).plain.rstrip().endswith("JOB (37 workers more)")


def test_a_number_stands_at_the_right_and_keeps_its_style() -> None:
    table = Table((Column("N", 5, right=True), Column("", 1)), (), "")
    line = table.line(Row("a", (Text.assemble(("12", "bold")), Text("x")), JobAim("a")), 10)
    assert line.plain == "   12 x   "
    assert [(span.start, span.end, str(span.style)) for span in line.spans] == [(3, 5, "bold")]
