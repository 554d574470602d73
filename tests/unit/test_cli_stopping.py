"""Ctrl-C, once or many times at once."""

import subprocess
import sys

import pytest

STORM = """
import os, signal, time
from herdsman.cli.services import Stopping
stopping = Stopping()
for _ in range(2000):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
deadline = time.monotonic() + 20
while stopping.asked < 2 and time.monotonic() < deadline:
    time.sleep(0.01)
print(stopping.is_set(), stopping.asked >= 2)
"""

ELSEWHERE = """
import signal, sys, threading, time
from herdsman.cli.services import Stopping
from herdsman.loops.loop_group import LoopGroup
from herdsman.loops.periodic import PeriodicLoop

def receive():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    time.sleep(60)

threading.Thread(target=receive, daemon=True).start()
if sys.argv[1] == "Stopping":
    print(Stopping().wait())
else:
    LoopGroup([PeriodicLoop("idle", lambda: 60.0)], watchdog_threshold=None).run()
    print(True)
"""


@pytest.mark.parametrize("waiting", ["Stopping", "LoopGroup"])
def test_a_signal_that_another_thread_receives_is_heard(waiting: str) -> None:
    """The kernel may choose any thread, and only the first one runs Python's handlers."""
    command = [sys.executable, "-c", ELSEWHERE, waiting]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout.split() == ["True"]


def test_many_signals_at_once_do_not_lock_it_up() -> None:
    """The handler of the second one runs in the middle of the first one's."""
    said = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["True", "True"]
