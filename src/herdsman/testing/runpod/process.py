"""The container of a fake pod: a process on this machine, in a folder that stands for the container.

It has the pod's command and environment. Where these name the mount of a volume, such as `/workspace`, the folder's own
path is put in its place: there is no such directory on this machine, and none is made.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM

from herdsman.testing.runpod import pod_init

LONGEST_LINE = 4096
GRACE_S = 10
# As in an image, nothing of ours is there; but what is installed beside us can be started by its name.
PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])


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
            [
                sys.executable,
                "-I",
                "-S",
                str(pod_init.__file__),
                *(_placed(word, mounts) for word in command),
            ],
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
        self._popen.send_signal(SIGTERM)

    def kill(self) -> None:
        """Everything in it is gone when this returns."""
        assert self._popen.stdin is not None
        # With the pipe closed, the first process kills the rest and follows.
        self._popen.stdin.close()
        try:
            self._popen.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, SIGKILL)
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
