"""When a server is said to be away, and for how long."""

from collections.abc import Callable
from threading import Event

import pytest

from herdsman.cli.top.screens import Contact, Outcome, in_background
from herdsman.errors import Forbidden, StoreUnavailable, Unreachable


def test_nothing_is_wrong_while_answers_come() -> None:
    contact = Contact(answered_at=0)
    assert contact.asks(10)
    assert contact.trouble(12) == ""
    contact.hears(12)
    assert contact.trouble(500) == ""


def test_one_question_at_a_time() -> None:
    contact = Contact(answered_at=0)
    assert contact.asks(1)
    assert not contact.asks(2)
    contact.hears(3)
    assert contact.asks(3)


def test_a_silent_server_is_said_to_be_away_before_it_is_certain() -> None:
    contact = Contact(answered_at=0)
    contact.asks(1)
    assert contact.trouble(4) == ""
    assert contact.trouble(4.5).startswith("no answer for 4s")


@pytest.mark.parametrize("error", [Unreachable("nobody there"), StoreUnavailable("nobody there")])
def test_an_error_of_the_way_is_told_with_its_length(error: Unreachable | StoreUnavailable) -> None:
    contact = Contact(answered_at=10)
    contact.fails(error)
    assert contact.trouble(52) == "no answer for 42s, showing the last state: nobody there"
    assert contact.asks(53)
    contact.hears(54)
    assert contact.trouble(54) == ""


def test_a_refusal_is_told_as_it_is() -> None:
    contact = Contact(answered_at=10)
    contact.fails(Forbidden("a worker may not GET /overview"))
    assert contact.trouble(52) == "a worker may not GET /overview"


def test_whatever_a_question_ends_in_is_told() -> None:
    assert (said(lambda: 1).value, said(lambda: 1).error) == (1, None)
    assert isinstance(said(lambda: raised(Unreachable("x"))).error, Unreachable)
    assert isinstance(said(lambda: raised(ZeroDivisionError())).error, ZeroDivisionError)


def said(question: Callable[[], object]) -> Outcome:
    told, came = list[Outcome](), Event()

    def tell(message: Outcome) -> None:
        told.append(message)
        came.set()

    in_background(question, tell)
    assert came.wait(30)
    return told[0]


def raised(error: Exception) -> object:
    raise error
