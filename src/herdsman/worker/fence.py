"""A small program beside each handler's process: it ends the handler when its claim may be another's (W8).

The supervisor says again and again until when the claim holds. When that time passes on this program's own clock, the
handler ends, although the supervisor may stand still, and the handler may hold the interpreter's lock or ignore
signals. It is started from its file, without any package, and imports next to nothing.
"""

import os
import select
import signal
import sys
import time

FIRED = b"!"
"""Said before anything is killed, so that the supervisor knows who did it."""
_SUPERVISOR = 0
"""The number of the socket to it."""
_ROUNDS = 100
_PAUSE_S = 0.01


def main() -> None:
    group, mark, home = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
    until: float | None = None
    unread = b""
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([_SUPERVISOR], [], [], left)[0]:
            os.write(_SUPERVISOR, FIRED)
            os.killpg(group, signal.SIGKILL)
            end_marked(mark)
            return
        got = os.read(_SUPERVISOR, 4096)
        if not got:  # the supervisor is dead, and its handler dies with it; what that has started does not
            end_marked(mark)
            import shutil  # noqa: PLC0415  (dear, and needed only here)

            shutil.rmtree(home, ignore_errors=True)  # its supervisor can no longer remove it
            return
        *words, unread = (unread + got).split(b"\n")
        if words:
            until = float(words[-1]) if words[-1] else None


def end_marked(mark: bytes) -> None:
    """Processes with the mark of this handler in their environment, wherever they went to, until none is left."""
    for _ in range(_ROUNDS):
        found = [
            int(name)
            for name in os.listdir("/proc")  # noqa: PTH208  pathlib is dear to import
            if name.isdecimal() and _has(name, mark)
        ]
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if not found:
            return
        time.sleep(_PAUSE_S)


def _has(pid: str, mark: bytes) -> bool:
    """Whether the process has the mark in its environment; one that has ended has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return mark in file.read().split(b"\0")
    except OSError:
        return False


if __name__ == "__main__":
    main()
