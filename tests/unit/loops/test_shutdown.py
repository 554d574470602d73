"""Signals become an orderly end, and a handler never waits for a lock."""

import os
import signal
import threading

import pytest

from herdsman.loops import ShutdownCoordinator
from tests.unit.loops.doubles import eventually


def test_the_first_signal_asks_and_the_second_is_harder() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ShutdownCoordinator() as coordinator:
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: coordinator.triggered)
        assert not coordinator.hard
        os.kill(os.getpid(), signal.SIGINT)
        eventually(lambda: coordinator.hard)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_comes_while_its_own_locks_are_held_is_kept_for_later() -> None:
    """With a lock in the handler this test would hang."""
    with ShutdownCoordinator() as coordinator:
        event = coordinator._triggered  # pyright: ignore[reportPrivateUsage]
        lock = coordinator._lock  # pyright: ignore[reportPrivateUsage]
        with lock, vars(event)["_cond"]:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not coordinator.triggered
        assert coordinator.wait(30)


def test_callbacks_hear_of_it_until_they_are_taken_off(caplog: pytest.LogCaptureFixture) -> None:
    coordinator, heard = ShutdownCoordinator(), list[str]()

    def fail() -> None:
        raise OSError("away")

    def first() -> None:
        heard.append("first")

    def second() -> None:
        heard.append("second")

    for callback in (fail, first, second):
        coordinator.register(callback)
    coordinator.unregister(second)
    coordinator.trigger()
    coordinator.register(second)
    assert heard == ["first", "second"]
    assert "a shutdown callback failed" in caplog.text


def test_outside_of_the_main_thread_no_signal_is_touched() -> None:
    before, said = signal.getsignal(signal.SIGTERM), list[bool]()
    coordinator = ShutdownCoordinator()
    thread = threading.Thread(target=lambda: said.append(coordinator.install()))
    thread.start()
    thread.join(30)
    coordinator.uninstall()
    assert said == [False]
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_is_installed_once() -> None:
    with ShutdownCoordinator() as coordinator:
        assert coordinator.install() is False
