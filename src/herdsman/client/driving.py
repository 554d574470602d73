"""Runs coroutines that only ever block, so that what a client does is written once for both kinds of programs."""

from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def run(doing: Coroutine[Any, Any, T]) -> T:
    try:
        doing.send(None)
    except StopIteration as done:
        return done.value
    doing.close()
    raise AssertionError("a coroutine of a blocking client waited for an event loop")


def iterate(items: AsyncGenerator[T]) -> Iterator[T]:
    """Ends the generator with it, so that a loop that is left early leaves no connection open."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())
