"""Writes every operation once, as a coroutine, and offers it to blocking programs and to those with an event loop.

A coroutine over a `BlockingConnection` never waits for an event loop, so `run` drives it to its end at once.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """A class whose operations return when they are done."""


class Awaited:
    """A class whose operations are awaited."""


class operation(Generic[P, T]):  # noqa: N801  (a decorator)
    """A coroutine method: awaited on an `Awaited` class, run to its end on a `Blocking` one."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        @wraps(method)
        def blocking(self: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return run(method(self, *args, **kwargs))

        self._awaited, self._blocking = method, blocking

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: Awaited, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: object, owner: type[Any]) -> Callable[..., Any]:
        method = self._blocking if issubclass(owner, Blocking) else self._awaited
        return method if instance is None else MethodType(method, instance)


class iteration(Generic[P, T]):  # noqa: N801  (a decorator)
    """A method that makes an asynchronous generator: a plain iterator on a `Blocking` class."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncGenerator[T]]) -> None:
        @wraps(method)
        def blocking(self: object, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return iterate(method(self, *args, **kwargs))

        self._awaited, self._blocking = method, blocking

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, instance: Blocking, owner: type[Any]) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: Awaited, owner: type[Any]) -> Callable[P, AsyncGenerator[T]]: ...
    def __get__(self, instance: object, owner: type[Any]) -> Callable[..., Any]:
        method = self._blocking if issubclass(owner, Blocking) else self._awaited
        return method if instance is None else MethodType(method, instance)


def run(doing: Coroutine[Any, Any, T]) -> T:
    try:
        doing.send(None)
    except StopIteration as done:
        return done.value
    doing.close()
    raise AssertionError("a coroutine of a blocking client waited for an event loop")


def iterate(items: AsyncGenerator[T]) -> Iterator[T]:
    """Closes the generator with it, so that a loop that is left early leaves no connection open."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())
