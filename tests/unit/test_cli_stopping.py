"""Ctrl-C, once or many times at once."""

import subprocess
import sys

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


def test_many_signals_at_once_do_not_lock_it_up() -> None:
    """The handler of the second one runs in the middle of the first one's."""
    said = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.split() == ["True", "True"]
