"""One exchange within limits: an answer that never ends, or that is too large, is cut off, and always closed."""

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from herdsman.web import Endless, Oversized, sent, whole


class Ticking:
    """Each look at it is a second later."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now

    def sleep(self, duration: timedelta) -> None:
        self.now += duration.total_seconds()


class Drip(httpx.SyncByteStream):
    closed = False

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(1000):
            yield b"drop"

    def close(self) -> None:
        self.closed = True


def read(drip: Drip, *, seconds: float, largest: int) -> bytes:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=drip))
    with (
        httpx.Client(transport=transport, base_url="http://there") as client,
        sent(client, client.build_request("GET", "/")) as response,
    ):
        return whole(response, Ticking(), seconds=seconds, largest=largest)


def test_an_answer_within_limits_is_read_to_its_end() -> None:
    assert read(Drip(), seconds=2000, largest=4000) == b"drop" * 1000


def test_an_answer_that_comes_drop_by_drop_is_left() -> None:
    drip = Drip()
    with pytest.raises(Endless, match="after 5 seconds"):
        read(drip, seconds=5, largest=4000)
    assert drip.closed


def test_an_answer_that_is_too_large_is_left() -> None:
    drip = Drip()
    with pytest.raises(Oversized, match="after 104 bytes"):
        read(drip, seconds=2000, largest=100)
    assert drip.closed
