"""`herdsman` as a page types it, run by the process that has loaded every command: `preloaded_commands`.

Standard library only, since it is started with `-IS` and must be quick: 20 ms, where loading a command takes 800.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType


def main(place: str, words: list[str]) -> None:
    """Ends as the command does; a signal is passed on to it."""
    ended, tell = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(place)
        asked = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()  # noqa: PTH109  (pathlib loads slowly)
        socket.send_fds(line, [asked], [0, 1, 2, tell])
    os.close(tell)
    with os.fdopen(ended, "rb", buffering=0) as answers:
        pid = int(answers.readline())

        def pass_on(number: int, _: FrameType | None) -> None:
            os.kill(pid, number)

        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, pass_on)
        code = int(answers.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
