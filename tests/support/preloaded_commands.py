"""A process that has loaded every command already: each that a test types is a fork of it.

Loading takes most of the time of a command, and the tests type thousands. The child has an environment, a directory and
streams of its own; what loading itself does is tested where commands are started anew (`test_cli_lazy`, the pages).
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NoReturn

LONGEST = 1 << 17
_ALSO = ("herdsman.server.replica",)
"""What `herdsman up` imports late. The simulation stays out: few tests run it."""


def main(listener: socket.socket) -> None:
    """Serves whoever connects, until nobody is at the other end of its standard input."""
    _load()
    lifeline = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while lifeline not in (ready := select.select([lifeline, listener], [], [])[0]):
        if listener in ready:
            with listener.accept()[0] as line:
                asked, fds = socket.recv_fds(line, LONGEST, 4)[:2]
            if asked and os.fork() == 0:
                lifeline.close()
                listener.close()
                _watch(asked, *fds)
            for each in fds:
                os.close(each)


def _load() -> None:
    from herdsman.cli.main import COMMANDS  # noqa: PLC0415  (only this process needs it)

    places = {entry.place.partition(":")[0] for entry in COMMANDS.values()} - {"sim"}
    for module in (*(f"herdsman.cli.{place}" for place in sorted(places)), *_ALSO):
        import_module(module)
    gc.freeze()


def _watch(asked: bytes, stdin: int, out: int, err: int, tell: int) -> NoReturn:
    """Tells who the command is, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        words, directory, environment = json.loads(asked)
        _become(directory, environment, (stdin, out, err))
        _run(words)
    os.write(tell, f"{pid}\n".encode())
    for each in (0, 1, 2, stdin, out, err):  # else whoever reads what it prints would wait for us too
        os.close(each)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(tell, f"{code}\n".encode())
    os._exit(0)


def _become(directory: str, environment: Mapping[str, str], streams: Sequence[int]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def _run(words: Sequence[str]) -> NoReturn:
    from herdsman.cli.main import main as herdsman  # noqa: PLC0415

    sys.argv[:] = ["herdsman", *words]
    code: object = 1
    try:
        herdsman()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException as error:  # noqa: BLE001  (as the interpreter does)
        sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
