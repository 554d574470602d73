"""Places are given in the order in which they were asked for, and none is lost."""

import threading
import time
from collections.abc import Callable

import pytest

from herdsman.db.connection import FairSemaphore
from tests.support.threads import at_once

LONG = 30.0


def waiting(semaphore: FairSemaphore, order: list[int], number: int) -> threading.Thread:
    """One that waits its turn, writes its number, and leaves."""

    def wait() -> None:
        assert semaphore.acquire(LONG)
        order.append(number)
        semaphore.release()

    return begun(wait, semaphore)


def begun(work: Callable[[], object], semaphore: FairSemaphore) -> threading.Thread:
    before = semaphore.waiting
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    give_up = time.monotonic() + LONG
    while semaphore.waiting == before and time.monotonic() < give_up:
        time.sleep(0.001)
    return thread


def test_who_waits_is_let_in_in_order_and_nobody_overtakes() -> None:
    semaphore, order = FairSemaphore(1), list[int]()
    assert semaphore.acquire(0)
    threads = [waiting(semaphore, order, number) for number in range(5)]
    semaphore.release()
    assert semaphore.acquire(LONG)  # at once: but five asked before
    assert order == [0, 1, 2, 3, 4]
    semaphore.release()
    for thread in threads:
        thread.join(LONG)


def test_so_many_are_inside_at_once() -> None:
    semaphore, inside, most = FairSemaphore(3), list[int](), list[int]()

    def work(number: int) -> None:
        for _ in range(50):
            assert semaphore.acquire(LONG)
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)
            semaphore.release()

    at_once(12, work)
    assert max(most) <= 3
    assert [semaphore.acquire(0) for _ in range(4)] == [True, True, True, False]


def test_who_gives_up_leaves_the_line() -> None:
    semaphore = FairSemaphore(1)
    assert semaphore.acquire(0)
    assert not semaphore.acquire(0.01)
    assert semaphore.waiting == 0
    semaphore.release()
    assert semaphore.acquire(0)


def test_a_turn_that_comes_at_the_last_moment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    semaphore = FairSemaphore(1)
    assert semaphore.acquire(0)

    def too_late(_turn: threading.Event, _timeout: float) -> bool:
        semaphore.release()
        return False

    monkeypatch.setattr(threading.Event, "wait", too_late)
    assert semaphore.acquire(1)
    monkeypatch.undo()
    assert not semaphore.acquire(0)


@pytest.mark.parametrize("its_turn_came", [True, False])
def test_who_is_interrupted_keeps_no_place(monkeypatch: pytest.MonkeyPatch, its_turn_came: bool) -> None:
    semaphore = FairSemaphore(1)
    assert semaphore.acquire(0)

    def interrupted(_turn: threading.Event, _timeout: float) -> bool:
        if its_turn_came:
            semaphore.release()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            semaphore.acquire(1)
    if not its_turn_came:
        semaphore.release()
    assert semaphore.acquire(0)
    assert not semaphore.acquire(0)
