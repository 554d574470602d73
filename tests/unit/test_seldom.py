"""A look is shared by all who ask within a moment."""

from datetime import timedelta
from threading import Event, Thread

from herdsman.concurrency import FRESH_S, SHARE, LatestValue, TtlCache
from herdsman.testing.clocks import ManualClock


def test_it_is_looked_once_within_a_moment_and_again_after_it() -> None:
    clock, looks = ManualClock(), list[int]()
    shared = TtlCache(lambda: looks.append(1) or len(looks), clock)
    assert [shared.get(), shared.get()] == [1, 1]
    clock.advance(timedelta(seconds=FRESH_S))
    assert shared.get() == 2


def test_a_look_that_takes_long_is_repeated_less_often() -> None:
    clock, looks = ManualClock(), list[int]()

    def look() -> int:
        clock.advance(timedelta(seconds=1))
        looks.append(1)
        return len(looks)

    shared = TtlCache(look, clock)
    assert shared.get() == 1
    clock.advance(timedelta(seconds=SHARE - 2))
    assert shared.get() == 1
    clock.advance(timedelta(seconds=1))
    assert shared.get() == 2


def test_many_who_ask_at_once_cause_one_look() -> None:
    looks = list[int]()
    shared = TtlCache(lambda: looks.append(1) or len(looks), ManualClock())
    threads = [Thread(target=shared.get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert looks == [1]


def test_while_one_thread_reads_the_others_use_the_last_value() -> None:
    clock, begun, go_on = ManualClock(), Event(), Event()

    def read(last: int | None) -> int:
        if last is not None:
            begun.set()
            assert go_on.wait(10)
        return (last or 0) + 1

    latest = LatestValue(read, clock, fresh_s=1)
    assert [latest(), latest()] == [1, 1]
    clock.advance(timedelta(seconds=1))
    slow = Thread(target=latest)
    slow.start()
    assert begun.wait(10)
    clock.advance(timedelta(seconds=1))
    assert latest() == 1
    go_on.set()
    slow.join()
    assert latest() == 3
    latest.drop()
    assert latest() == 4
