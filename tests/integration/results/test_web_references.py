"""Files on the web that jobs name: only public ones, or on hosts that were allowed, and none without end."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from herdsman.errors import Forbidden, HerdsmanError, NotFound, ServiceUnavailable, TooLarge
from herdsman.ports import ResultFiles
from herdsman.results import ResultOptions, open_store

MB = 1024 * 1024


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/cat.png":
                self._answer(200, b"cat")
            case "/endless":
                self._endless()
            case "/huge":
                self._head(200, **{"Content-Length": str(10**12)})
            case "/moved":
                self._head(302, Location="/cat.png", **{"Content-Length": "0"})
            case "/inside":
                self._head(302, Location="http://169.254.169.254/latest", **{"Content-Length": "0"})
            case "/short":
                self._head(200, **{"Content-Length": "100"})
                self.wfile.write(b"only this")
            case status:
                self._answer(int(status.strip("/")), b"no")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name that it has there)
        """Nobody reads it."""

    def _answer(self, status: int, body: bytes) -> None:
        self._head(status, **{"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _head(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _endless(self) -> None:
        self._head(200)
        try:
            while True:
                self.wfile.write(bytes(MB))
        except OSError:
            self.close_connection = True


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def allowing(tmp_path: Path) -> ResultFiles:
    return open_store(ResultOptions(place=str(tmp_path), max_file_mb=2, allow_hosts=("127.0.0.1",)))


def whole(store: ResultFiles, uri: str) -> bytes:
    return b"".join(store.read(uri))


def test_a_file_on_a_host_that_was_allowed_is_read(allowing: ResultFiles, web: str) -> None:
    assert whole(allowing, f"{web}/cat.png") == b"cat"
    assert whole(allowing, f"{web}/moved") == b"cat"


def test_this_machine_and_private_networks_are_closed_unless_allowed(directory: ResultFiles, web: str) -> None:
    for uri in (f"{web}/cat.png", "http://169.254.169.254/latest", "http://10.0.0.1/", "HTTP://[::1]/"):
        with pytest.raises(Forbidden, match="must not be reached"):
            whole(directory, uri)


def test_a_redirect_leads_to_no_place_that_is_closed(allowing: ResultFiles, web: str) -> None:
    with pytest.raises(Forbidden, match=r"169\.254\.169\.254"):
        whole(allowing, f"{web}/inside")


@pytest.mark.parametrize("page", ["endless", "huge"])
def test_a_file_without_end_is_given_up_at_the_limit(allowing: ResultFiles, web: str, page: str) -> None:
    with pytest.raises(TooLarge, match="RESULT_MAX_FILE_MB"):
        whole(allowing, f"{web}/{page}")


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("404", NotFound),
        ("410", NotFound),
        ("401", Forbidden),
        ("403", Forbidden),
        ("500", ServiceUnavailable),
        ("429", ServiceUnavailable),
        ("204", ServiceUnavailable),
        ("short", ServiceUnavailable),
    ],
)
def test_an_answer_without_a_file_is_told_and_its_key_is_not(
    allowing: ResultFiles, web: str, page: str, error: type[HerdsmanError]
) -> None:
    with pytest.raises(error, match=f"/{page}") as told:
        whole(allowing, f"{web}/{page}?signature=canary")
    assert "canary" not in str(told.value)


def test_a_server_that_is_away_is_unavailable(allowing: ResultFiles) -> None:
    with pytest.raises(ServiceUnavailable, match="can be reached"):
        whole(allowing, "http://127.0.0.1:1/cat.png")
