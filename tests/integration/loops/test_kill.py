"""The kill itself, seen from outside."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from herdsman.loops import read_crashes
from tests.unit.loops.doubles import eventually

STALLS = """
import time
from herdsman import Heartbeat, Watchdog

heartbeat = Heartbeat()
watchdog = Watchdog([heartbeat], stall_threshold=0.5, check_interval=0.1)
watchdog.start()
time.sleep(60)
print("ERROR: should have been killed")
"""


def run(script: str, *before: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*before, sys.executable, "-c", script], capture_output=True, text=True, timeout=50)


def test_watchdog_terminates_on_stall() -> None:
    done = run(STALLS)
    assert done.returncode == -signal.SIGKILL
    assert "ERROR" not in done.stdout
    said = [line for line in done.stderr.splitlines() if line.startswith("Watchdog: ")]
    assert re.fullmatch(r"Watchdog: loop-0 stalled for \d+\.\ds \(threshold: 0\.5s\)", said[0])
    assert said[1] == "Watchdog: terminating process due to stalled workers"


def test_the_first_process_of_a_pid_namespace_ends_too() -> None:
    """SIGKILL alone would leave it alive."""
    unshare = shutil.which("unshare")
    assert unshare is not None, "unshare is missing: install util-linux"
    alone = [unshare, "-rpf", "--kill-child"]
    allowed = subprocess.run([*alone, "true"], capture_output=True, text=True, timeout=30)
    if allowed.returncode != 0:
        pytest.skip(f"this kernel gives no PID namespace: {allowed.stderr.strip()}")
    script = f"import os\nassert os.getpid() == 1\n{STALLS}"
    done = run(script, *alone)
    assert done.returncode == 137
    assert "ERROR" not in done.stdout
    assert "Watchdog: terminating process" in done.stderr


LEAVES_WORD = """
import logging, logging.handlers, subprocess, sys, time
from pathlib import Path
from herdsman import Heartbeat, Watchdog

where = Path(sys.argv[1])
file = logging.FileHandler(where / "log")
buffered = logging.handlers.MemoryHandler(1000, flushLevel=logging.CRITICAL + 1, target=file)
logging.getLogger().addHandler(buffered)
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
(where / "child").write_text(str(child.pid))

def stuck_here():
    time.sleep(300)

watchdog = Watchdog([Heartbeat()], stall_threshold=0.2, check_interval=0.05, crash_dir=where, kill_grace=5)
watchdog.own_group(child.pid)
watchdog.before_kill(lambda: (where / "given-back").write_text("yes"))
watchdog.start()
stuck_here()
"""


def test_before_the_kill_it_leaves_word_gives_back_and_ends_its_children(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES_WORD, tmp_path], capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGKILL
    assert "in stuck_here" in done.stderr
    assert "Watchdog: terminating process" in (tmp_path / "log").read_text()
    assert (tmp_path / "given-back").read_text() == "yes"
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not runs(child))
    (record,) = read_crashes(tmp_path)
    assert "in stuck_here" in record.stacks
    assert record.threshold == 0.2
    assert record.stalled.keys() == {"loop-0"}


GROUP = """
import sys, time
from pathlib import Path
from herdsman import InMemoryMailbox, LoopGroup, MainLoop, MainLoopRequest

class Told(InMemoryMailbox):
    def nack(self, message, **more):
        super().nack(message, **more)
        Path(sys.argv[1], "nacked").write_text(f"{message.id} {more['visibility_timeout']}")

class Sticks(MainLoop):
    def perform(self, request, beat):
        time.sleep(300)

mailbox = Told()
mailbox.send(MainLoopRequest(request="a"))
LoopGroup(
    [Sticks(mailbox, name="images")],
    health_port=0, watchdog_threshold=3.0, watchdog_interval=0.1, crash_dir=Path(sys.argv[1]),
).run(wait_time_seconds=0.1)
"""


def test_a_stuck_loop_of_a_group_gives_its_message_back_before_the_kill(tmp_path: Path) -> None:
    """At once, not when its visibility timeout is over."""
    done = subprocess.run([sys.executable, "-c", GROUP, tmp_path], capture_output=True, text=True, timeout=50)
    assert done.returncode == -signal.SIGKILL
    assert "images is late: no beat for" in done.stderr
    assert "Watchdog: images stalled for" in done.stderr
    assert (tmp_path / "nacked").read_text() == "m1 0"
    assert read_crashes(tmp_path)[0].stalled.keys() == {"images"}


FINISHES = """
import time
from herdsman import Heartbeat, InMemoryMailbox, LoopGroup, MainLoop

class Nothing(MainLoop):
    def perform(self, request, beat): ...

class Beats:
    name, running, heartbeat = "beats", True, Heartbeat()
    def run(self, *_):
        for _ in range(450):
            self.heartbeat.beat()
            time.sleep(0.01)
    def shutdown(self, *, timeout=0): return True

short = Nothing(InMemoryMailbox(), name="short")
LoopGroup([short, Beats()], watchdog_threshold=3.0, watchdog_interval=0.1).run(1, 1800, 0)
print("done")
"""


def test_a_loop_that_finished_long_ago_kills_nobody() -> None:
    done = run(FINISHES)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


SIGNALLED = """
import sys
from herdsman import InMemoryMailbox, LoopGroup, MainLoop, MainLoopRequest
import time

class Waits(MainLoop):
    def perform(self, request, beat):
        print("begun", flush=True)
        time.sleep(float(request))

mailbox = InMemoryMailbox()
mailbox.send(MainLoopRequest(request=sys.argv[1]))
LoopGroup([Waits(mailbox), Waits(mailbox)], shutdown_timeout=300).run()
print("left", len(mailbox), flush=True)
"""


@pytest.mark.parametrize(
    ("takes", "signals", "left"), [("0.3", 1, "left 0\n"), ("300", 2, "left 1\n")], ids=["gentle", "hard"]
)
def test_a_signal_ends_a_group_and_a_second_one_at_once(takes: str, signals: int, left: str) -> None:
    """The first lets the message finish, the second gives it back."""
    with subprocess.Popen([sys.executable, "-c", SIGNALLED, takes], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(signals):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
        within(40, lambda: process.poll() is not None, process)
        assert (process.returncode, process.stdout.read()) == (0, left)


def within(seconds: float, holds: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    try:
        eventually(holds, seconds)
    except AssertionError:
        process.kill()
        raise


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  (it may vanish while it is read)
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
