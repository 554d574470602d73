"""Where log lines go: standard error, a file, and a bounded queue of rows for the database."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import structlog

from herdsman.errors import InvalidSettings, StoreUnavailable
from herdsman.telemetry.logs import LogRow, LogRows, configure_logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


class Table:
    def __init__(self) -> None:
        self.stored: list[list[str]] = []
        self.away = False

    def write(self, rows: Sequence[LogRow]) -> None:
        if self.away:
            raise StoreUnavailable("it restarts")
        self.stored.append([f"{row.event} {row.fields['rows']}" if "rows" in row.fields else row.event for row in rows])


def rows_to(table: Table, *, level: str = "info", batch: int = 3, most: int = 5) -> LogRows:
    return LogRows(table.write, level=level, batch=batch, flush_every=3600, most=most)


def say(*events: str) -> None:
    for event in events:
        structlog.get_logger().info(event)


def test_a_file_gets_the_lines_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LOG_FILE, ORCHESTRATOR_INSTANCE_ID"""
    file = tmp_path / "herdsman.log"
    configure_logs("info", "json", file=str(file), instance="replica-a")
    structlog.get_logger().info("100 %s done", job_id="j1")
    structlog.get_logger().debug("unheard")
    (line,) = [json.loads(each) for each in file.read_text().splitlines()]
    assert {name: line[name] for name in ("event", "instance", "job_id", "level")} == {
        "event": "100 %s done",
        "instance": "replica-a",
        "job_id": "j1",
        "level": "info",
    }
    assert json.loads(capsys.readouterr().err) == line


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    file = tmp_path / "herdsman.log"
    configure_logs("info", "json", file=str(file))
    say("one")
    file.rename(tmp_path / "herdsman.log.1")
    say("two")
    assert [json.loads(each)["event"] for each in file.read_text().splitlines()] == ["two"]


def test_a_line_that_the_file_does_not_take_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json", file="/dev/full")
    say("one")
    assert json.loads(capsys.readouterr().err)["log_file"] == "not written: No space left on device"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"LOG_FILE .*nowhere/h.log cannot be written: No such file"):
        configure_logs("info", "json", file=str(tmp_path / "nowhere" / "h.log"))


def test_rows_are_written_in_batches(capsys: pytest.CaptureFixture[str]) -> None:
    """DB_LOG_BATCH_SIZE, DB_LOG_LEVEL: the database may want more than the terminal, or less."""
    table = Table()
    rows = rows_to(table, level="debug", batch=2)
    configure_logs("warning", "json", rows=rows)
    structlog.get_logger().debug("a")
    say("b", "c")
    rows.flush()
    assert table.stored == [["a", "b"], ["c"]]
    assert capsys.readouterr().err == ""
    quiet = rows_to(table, level="error")
    configure_logs("info", "json", rows=quiet)
    say("d")
    quiet.flush()
    assert table.stored == [["a", "b"], ["c"]]


def test_rows_wait_for_a_database_that_is_away_and_lost_ones_are_counted_and_said() -> None:
    table = Table()
    rows = rows_to(table)
    configure_logs("critical", "json", rows=rows)
    table.away = True
    say("1", "2", "3")
    with pytest.raises(StoreUnavailable):
        rows.flush()
    say("4", "5", "6", "7")
    assert rows.dropped == 2
    with pytest.raises(StoreUnavailable):
        rows.flush()
    say("8")
    table.away = False
    rows.flush()
    assert table.stored == [["log.dropped 3", "4", "5", "6"], ["7", "8"]]
    assert rows.dropped == 0


def test_a_full_batch_is_written_without_waiting_and_the_rest_at_the_end() -> None:
    table = Table()
    rows = rows_to(table, batch=2)
    configure_logs("critical", "json", rows=rows)
    rows.start()
    say("a", "b", "c")
    rows.close()
    assert [each for batch in table.stored for each in batch] == ["a", "b", "c"]
