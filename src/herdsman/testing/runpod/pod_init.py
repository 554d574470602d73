"""Process one of a fake pod: it starts the command, and takes everything the command started down with it.

It runs as a script of its own, with nothing but the standard library. A real container ends with all that is in
it, however a process has detached itself; orphans are therefore adopted here. The pipe on standard input is held
open by the fake: when that is closed, or the fake dies, it is over for everything in the pod.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
COULD_NOT_START = 127
STDIN = 0


def main(command: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        first = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} could not be started: {error}", flush=True)
        return COULD_NOT_START
    # Whoever stops a container asks its first process, and only that.
    signal.signal(signal.SIGTERM, lambda _, __: send(first.pid, signal.SIGTERM))
    threading.Thread(target=end_with_the_pipe, args=(first.pid,), daemon=True).start()
    status = wait_for(first.pid)
    end_all()
    return status


def wait_for(first: int) -> int:
    """Bury whoever ends, until it is the first process."""
    while True:
        pid, status = os.wait()
        if pid == first:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def end_with_the_pipe(first: int) -> None:
    while os.read(STDIN, 1):
        pass
    send(first, signal.SIGKILL)


def send(pid: int, word: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, word)


def end_all() -> None:
    """Each round ends the children, and the next one those that have become ours by that."""
    while left := children(os.getpid()):
        for pid in left:
            send(pid, signal.SIGKILL)
        for pid in left:
            os.waitpid(pid, 0)


def children(parent: int) -> list[int]:
    ids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in ids if parent_of(pid) == parent]


def parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


if __name__ == "__main__":
    # At once: the thread at the pipe would not let the interpreter end.
    os._exit(main(sys.argv[1:]))
