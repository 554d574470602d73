"""The tools of the benchmarks: a number that they print can be believed."""

import math
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.limits import growth
from bench.limits import ratio as store_ratio
from bench.load import LoadFailed, posts_per_second
from bench.measure import Case
from bench.peers import marks
from bench.peers.catalogue import peers
from bench.peers.child import sample
from bench.peers.figures import percentile, ratio, table
from bench.peers.peer import PeerFailed, Program

BODY = b'{"type": "demo"}'


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1, 100)])
def test_a_percentile_is_the_least_that_the_share_does_not_exceed(share: float, expected: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], share) == expected


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.floats(0, 1))
def test_a_percentile_was_measured(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


def test_nothing_measured_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match=r"1\.5"):
        percentile([1.0], 1.5)


def test_a_ratio_says_how_many_times_theirs_ours_is() -> None:
    assert ratio(3, 2) == "1.50x"


def test_a_ratio_of_the_store_is_ours_over_raw_and_growth_the_largest_backlog_over_the_least() -> None:
    timings = {
        Case("ours", "claim", 1, 0): 2.0,
        Case("raw", "claim", 1, 0): 1.0,
        Case("ours", "claim", 1, 100): 3.0,
        Case("raw", "claim", 1, 100): 2.0,
    }
    assert store_ratio(timings, "claim", 1, 0) == 2
    assert growth(timings, "claim", 1, [100, 0]) == 1.5


def test_a_table_aligns_numbers_to_the_right() -> None:
    assert table(["peer", "jobs"], [["a", "1"], ["b", "2"]]).splitlines() == [
        "| peer | jobs |",
        "| --- | ---: |",
        "| a | 1 |",
        "| b | 2 |",
    ]


def test_a_row_that_does_not_fit_its_table_is_refused() -> None:
    with pytest.raises(AssertionError, match="do not fit"):
        table(["peer", "jobs"], [["a"]])


def test_marks_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    assert marks.count(path) == 0
    mark = marks.marker(path)
    mark()
    mark()
    first, second = marks.read(path)
    assert marks.count(path) == 2
    assert first <= second


def test_a_sample_is_taken_before_its_job_begins(tmp_path: Path) -> None:
    path = tmp_path / "marks"
    submitted = sample(marks.marker(path), path, samples=3, pause_s=0.001)
    began = marks.read(path)
    assert (len(submitted), len(began)) == (3, 4), "the first is not counted"
    assert all(before <= after for before, after in zip(submitted, began[1:], strict=True))


def test_a_peer_that_is_not_installed_is_named() -> None:
    lacking = Program(name="none", package="no-such-package", side="none", start=_no_server)
    with pytest.raises(PeerFailed, match="no-such-package is not installed"):
        lacking.version()


def test_a_peer_whose_process_fails_says_why() -> None:
    broken = Program(name="broken", package="none", side="no_such_side", start=_no_server)
    with pytest.raises(PeerFailed, match=r"broken could not fill(.|\n)*no_such_side"):
        broken.drain(1)


def test_every_peer_has_its_side() -> None:
    sides = {peer.side for peer in peers().values() if isinstance(peer, Program)}
    assert {path.stem for path in Path(marks.__file__).parent.glob("on_*.py")} == sides


def test_the_load_is_what_the_server_saw() -> None:
    with a_server() as (url, seen):
        load = posts_per_second(f"{url}/jobs?a=1", BODY, {"X-Key": "k"}, clients=3, seconds=2)
    assert load.errors == 0
    assert load.requests > 0
    assert load.per_second == load.requests / 2
    assert 0 < load.p50 <= load.p99
    # What was under way when the time was up is not counted: at most one for each client.
    assert load.requests <= len(seen.bodies) <= load.requests + 3
    assert set(seen.bodies) == {("/jobs?a=1", "k", BODY)}
    assert len(seen.connections) == 3, "every client keeps its connection"


def test_a_refusal_is_an_error_and_no_request() -> None:
    with a_server(status=503) as (url, _):
        load = posts_per_second(url, BODY, {}, clients=1, seconds=1)
    assert (load.requests, load.per_second) == (0, 0)
    assert load.errors > 0
    assert math.isnan(load.p50)


def test_a_server_that_hangs_up_is_an_error_and_the_client_goes_on() -> None:
    with a_server(keeps=False) as (url, seen):
        load = posts_per_second(url, BODY, {}, clients=1, seconds=1)
    assert load.errors > 0
    assert len(seen.connections) > 1


def test_no_server_is_said_at_once() -> None:
    with a_server() as (url, _):
        pass
    with pytest.raises(LoadFailed, match="see whether the server is up"):
        posts_per_second(url, BODY, {}, clients=2, seconds=0.1)


def test_an_address_that_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="http://"):
        posts_per_second("https://127.0.0.1/", BODY, {}, clients=1, seconds=0.1)


@dataclass(frozen=True)
class Seen:
    bodies: list[tuple[str, str | None, bytes]] = field(default_factory=list[tuple[str, str | None, bytes]])
    connections: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])


@contextmanager
def a_server(*, status: int = 201, keeps: bool = True) -> Generator[tuple[str, Seen]]:
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.bodies.append((self.path, self.headers["X-Key"], body))
            seen.connections.add(self.client_address)
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")
            self.close_connection = not keeps

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _no_server() -> Generator[str]:
    yield ""
