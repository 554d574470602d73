"""Places are given in the order in which they were asked for, and none is lost."""

import threading
import time
from collections.abc import Callable

import pytest

from herdsman.db.connection import FairSemaphore
from tests.threads import at_once

LONG = 30.0


def waiting(line: FairSemaphore, order: list[int], number: int) -> threading.Thread:
    """One that waits its turn, writes its number, and leaves."""

    def wait() -> None:
        assert line.enter(LONG)
        order.append(number)
        line.leave()

    return begun(wait, line)


def begun(work: Callable[[], object], line: FairSemaphore) -> threading.Thread:
    before = line.waiting
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    give_up = time.monotonic() + LONG
    while line.waiting == before and time.monotonic() < give_up:
        time.sleep(0.001)
    return thread


def test_who_waits_is_let_in_in_order_and_nobody_overtakes() -> None:
    line, order = FairSemaphore(1), list[int]()
    assert line.enter(0)
    threads = [waiting(line, order, number) for number in range(5)]
    line.leave()
    assert line.enter(LONG)  # at once: but five asked before
    assert order == [0, 1, 2, 3, 4]
    line.leave()
    for thread in threads:
        thread.join(LONG)


def test_so_many_are_inside_at_once() -> None:
    line, inside, most = FairSemaphore(3), list[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(50):
            assert line.enter(LONG)
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)
            line.leave()

    at_once(12, work)
    assert max(most) <= 3
    assert [line.enter(0) for _ in range(4)] == [True, True, True, False]


def test_who_gives_up_leaves_the_line() -> None:
    line = FairSemaphore(1)
    assert line.enter(0)
    assert not line.enter(0.01)
    assert line.waiting == 0
    line.leave()
    assert line.enter(0)


def test_a_turn_that_comes_at_the_last_moment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    line = FairSemaphore(1)
    assert line.enter(0)

    def too_late(_turn: threading.Event, _timeout: float) -> bool:
        line.leave()
        return False

    monkeypatch.setattr(threading.Event, "wait", too_late)
    assert line.enter(1)
    monkeypatch.undo()
    assert not line.enter(0)


@pytest.mark.parametrize("its_turn_came", [True, False])
def test_who_is_interrupted_keeps_no_place(monkeypatch: pytest.MonkeyPatch, its_turn_came: bool) -> None:
    line = FairSemaphore(1)
    assert line.enter(0)

    def interrupted(_turn: threading.Event, _timeout: float) -> bool:
        if its_turn_came:
            line.leave()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            line.enter(1)
    if not its_turn_came:
        line.leave()
    assert line.enter(0)
    assert not line.enter(0)
