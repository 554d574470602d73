"""The container of a fake pod: a process on this machine, in a folder that stands for the container.

It has the pod's command and environment. Where these name the mount of a volume, such as `/workspace`, the folder's own
path is put in its place: there is no such directory on this machine, and none is made.

This file is also a script, the first process of a pod, and therefore needs nothing but the standard library. It starts
the command, and takes everything the command started down with it. A real container ends with all that is in it, however
a process has detached itself; orphans are therefore adopted here. The pipe on standard input is held open by the fake:
when that is closed, or the fake dies, it is over for everything in the pod.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LONGEST_LINE = 4096
GRACE_S = 10
# As in an image, nothing of ours is there; but what is installed beside us can be started by its name.
PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
PR_SET_CHILD_SUBREAPER = 36
COULD_NOT_START = 127


class Container:
    """One run of a pod's command, in a process group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        say: Callable[[str], None],
        *,
        folder: Path,
        mounts: Mapping[str, Path],
    ) -> None:
        """`mounts` are the folders that stand for volumes, by the path under which the pod knows them."""
        for each in (folder, *mounts.values()):
            each.mkdir(parents=True, exist_ok=True)
        given = {name: _placed(value, mounts) for name, value in environment.items()}
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *(_placed(word, mounts) for word in command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": str(folder), **given},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(say,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def ask_to_stop(self) -> None:
        self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Everything in it is gone when this returns."""
        assert self._popen.stdin is not None
        # With the pipe closed, the first process kills the rest and follows.
        self._popen.stdin.close()
        try:
            self._popen.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        self._reader.join(GRACE_S)

    def _read(self, say: Callable[[str], None]) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            while line := output.readline(LONGEST_LINE):
                say(line.decode(errors="replace").rstrip("\n"))


def _placed(text: str, mounts: Mapping[str, Path]) -> str:
    for path, folder in mounts.items():
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", lambda _, here=folder: str(here), text)
    return text


def main(command: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        first = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} could not be started: {error}", flush=True)
        return COULD_NOT_START

    def end_with_the_pipe() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        send(first.pid, signal.SIGKILL)

    # Whoever stops a container asks its first process, and only that.
    signal.signal(signal.SIGTERM, lambda _, __: send(first.pid, signal.SIGTERM))
    threading.Thread(target=end_with_the_pipe, daemon=True).start()
    pid, status = 0, 0
    while pid != first.pid:  # reap whatever ends, until it is the first process
        pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    # Each round ends the children, and the next one those that have become ours by that.
    while left := children(os.getpid()):
        for pid in left:
            send(pid, signal.SIGKILL)
        for pid in left:
            os.waitpid(pid, 0)
    return code if code >= 0 else 128 - code


def send(pid: int, word: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, word)


def children(parent: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    # At once: the thread at the pipe would not let the interpreter end.
    os._exit(main(sys.argv[1:]))
