"""The stream of events: taken up again where it broke, in whatever pieces it arrives."""

import time
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.client.event_streams import LARGEST_EVENT, Event, Parser, TooLong
from herdsman.errors import Forbidden, Unreachable
from tests.unit.client.local_server import Served, page, refused, stream

TEXT = b': hello\n\nid: 1\nevent: job\ndata: {"a":\ndata: 1}\n\nid: 2\n\ndata:x\r\n\r\nretry: 5\n\n'
EVENTS = [Event("1", '{"a":\n1}'), Event("2", ""), Event("2", "x")]
OVER = httpx.Response(204)


@given(st.lists(st.integers(0, len(TEXT)), max_size=10))
def test_events_are_the_same_in_whatever_pieces_they_come(cuts: list[int]) -> None:
    parser = Parser()
    edges = [0, *sorted(cuts), len(TEXT)]
    chunks = [TEXT[start:end] for start, end in pairwise(edges)]
    assert [event for chunk in chunks for event in parser.feed(chunk)] == EVENTS


@pytest.mark.parametrize("chunk", [b"x" * 4096, b"data: y" + b"z" * 4000 + b"\n"])
def test_an_event_without_end_is_left(chunk: bytes) -> None:
    parser = Parser()
    with pytest.raises(TooLong):
        for _ in range(LARGEST_EVENT // 2000):
            list(parser.feed(chunk))


def test_comments_that_keep_the_line_alive_may_go_on_for_ever() -> None:
    parser = Parser()
    for _ in range(LARGEST_EVENT // 1000):
        assert list(parser.feed(b":" + b"x" * 4000 + b"\n")) == []


@pytest.mark.parametrize(
    "chunks",
    [[b"data: " + b"x" * 4000, *[b"y"] * 200_000], [b"data: " + b"x" * 500_000 + b"\n", *[b":\n"] * 200_000]],
    ids=["small pieces", "comments"],
)
def test_small_pieces_of_a_large_event_are_not_looked_at_again_and_again(chunks: list[bytes]) -> None:
    parser, began = Parser(), time.thread_time()
    assert [event for chunk in chunks for event in parser.feed(chunk)] == []
    assert time.thread_time() - began < 3


def test_a_broken_stream_is_taken_up_behind_the_last_event() -> None:
    served = Served(stream(4, 5), httpx.ReadError("cut"), page(502), stream(6), OVER)
    assert [event.id for event in served.client().events(since=3)] == [4, 5, 6]
    asked = [(each.url.params.get("since"), each.headers.get("Last-Event-ID")) for each in served.requests]
    assert asked == [("3", None), *[(None, "5")] * 3, (None, "6")]


def test_half_an_event_is_not_told_and_comes_again() -> None:
    served = Served(stream(1, rest='id: 2\ndata: {"id"'), stream(2), OVER)
    assert [event.id for event in served.client().events()] == [1, 2]
    assert served.requests[1].headers["Last-Event-ID"] == "1"


def test_a_stream_that_stays_away_is_given_up() -> None:
    served = Served(stream(1), httpx.ConnectError("refused"))
    found = served.client(patience=10).events()
    assert next(found).id == 1
    with pytest.raises(Unreachable):
        next(found)
    assert sum(served.clock.slept) < 10
    assert len(served.requests) > 3


def test_each_event_renews_the_patience() -> None:
    answers = [stream(each) for each in range(1, 40)]
    served = Served(*answers, OVER)
    assert len(list(served.client(patience=1).events())) == 39


def test_a_refusal_ends_the_stream_at_once() -> None:
    served = Served(refused(403, "forbidden"))
    with pytest.raises(Forbidden):
        next(served.client().events())
    assert len(served.requests) == 1


def test_a_stranger_on_the_stream_is_named() -> None:
    with pytest.raises(Unreachable, match="not an answer of Herdsman"):
        next(Served(page()).client(patience=0).events())
    odd = httpx.Response(200, content="data: hello\n\n", headers={"Content-Type": "text/event-stream"})
    with pytest.raises(Unreachable, match=r"none of Herdsman's"):
        next(Served(odd).client(patience=0).events())
