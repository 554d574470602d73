"""Answers that are cut, drip, never end or make no sense: each ends in time, with words that say what it was."""

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from herdsman.connectors.comfyui.api import Api, NotThere
from herdsman.connectors.comfyui.connector import Harvest
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.socket import Socket
from herdsman.connectors.registry import read_options
from herdsman.errors import ServiceUnavailable, SubmissionUnknown
from herdsman.ports import SystemClock
from tests.support.comfyui_workflows import MemoryStore

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def answering(*pieces: bytes, pause: float = 0.0, asked: list[bytes] | None = None) -> Generator[str]:
    """A server that says these bytes to whoever comes, whatever was asked."""
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with line:
                request = line.recv(65_536)
                if asked is not None:
                    asked.append(request)
                for piece in pieces:
                    if stop.is_set() or not _sent(line, piece):
                        break
                    stop.wait(pause)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _sent(line: socket.socket, piece: bytes) -> bool:
    try:
        line.sendall(piece)
    except OSError:
        return False
    return True


@contextmanager
def api_at(url: str) -> Generator[Api]:
    api = Api(read_options(ComfyUIOptions, {"url": url, "timeout_s": 1.0}), SystemClock())
    try:
        yield api
    finally:
        api.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "did not answer GET /queue to the end"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "did not answer GET /queue to the end"),
        (JSON + b'Content-Length: 100\r\n\r\n{"queue', "did not answer GET /queue to the end"),
        (JSON + b"Content-Length: 4\r\n\r\noops", "which is no JSON"),
        (JSON + b"Content-Length: 2\r\n\r\n[]", "which is no object"),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", "302"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "which is no JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<title>Sign in</title>", "titled 'Sign in'"),
        (b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n", "option url must lead to a ComfyUI"),
    ],
)
def test_what_is_not_comfyui_is_told_as_such(answer: bytes, said: str) -> None:
    with answering(answer) as url, api_at(url) as api, pytest.raises(ServiceUnavailable, match=said) as error:
        api.queue()
    assert url in str(error.value) or "GET /queue" in str(error.value)


def test_a_job_that_went_to_something_else_is_unclear() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<title>Sign in</title>"
    with answering(page) as url, api_at(url) as api, pytest.raises(SubmissionUnknown):
        api.post_prompt({"prompt": {}})


def test_an_answer_that_drips_is_left_in_time() -> None:
    drops = (JSON + b"\r\n", *(b" " for _ in range(200)))
    began = time.monotonic()
    with (
        answering(*drops, pause=0.1) as url,
        api_at(url) as api,
        pytest.raises(ServiceUnavailable, match="to the end"),
    ):
        api.queue()
    assert time.monotonic() - began < 10


def test_a_question_that_is_not_known_is_told_from_a_job_that_is_not() -> None:
    unknown = b'HTTP/1.1 404 Not Found\r\nContent-Length: 26\r\n\r\n{"error": "Job not found"}'
    with answering(unknown) as url, api_at(url) as api:
        assert api.job("x") is None
    no_route = b"HTTP/1.1 404 Not Found\r\nContent-Length: 14\r\n\r\n404: Not Found"
    with answering(no_route) as url, api_at(url) as api, pytest.raises(NotThere):
        api.job("x")


def test_headers_for_a_proxy_go_with_every_request_and_every_socket() -> None:
    asked: list[bytes] = []
    with answering(JSON + b"Content-Length: 2\r\n\r\n{}", asked=asked) as url:
        options = read_options(ComfyUIOptions, {"url": url, "headers": {"X-Key": "hunter2"}})
        api = Api(options, SystemClock())
        api.queue()
        with pytest.raises(ServiceUnavailable, match="refused with status 200"):
            Socket(options, "me", SystemClock()).open()
        api.close()
    assert len(asked) == 2
    assert all(b"x-key: hunter2" in request.lower() for request in asked)


def test_a_file_that_ends_too_soon_is_not_kept() -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: 1000\r\n\r\n" + b"x" * 10
    outputs = {"9": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}]}}
    store = MemoryStore()
    with (
        answering(cut) as url,
        api_at(url) as api,
        pytest.raises(ServiceUnavailable, match="to the end"),
    ):
        Harvest(api, store, "job").gather(outputs, {})
    assert store.files == {}
