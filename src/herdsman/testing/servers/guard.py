"""A small program beside each server, which ends it when the tests die without doing so.

A test run that is killed, or cut short by its time limit, runs no clean-up of its own. The guard reads from a
pipe that the tests hold open: a word means that the server was ended properly, silence that the tests are gone.
"""

import os
import shutil
import sys
from datetime import timedelta

from herdsman.testing.servers import family

GRACE = timedelta(seconds=10)


def main(pid: str, stop_signal: str, *scratch: str) -> None:
    server = family.look(int(pid))
    if sys.stdin.buffer.read():
        return
    if server is not None and not family.gone(server, within=timedelta(0)):
        end(server, int(stop_signal))
    for directory in scratch:
        shutil.rmtree(directory, ignore_errors=True)


def end(server: family.Seen, stop_signal: int) -> None:
    family.thaw(server.pid)
    os.kill(server.pid, stop_signal)
    if not family.gone(server, within=GRACE):
        family.kill(server.pid)


if __name__ == "__main__":
    main(*sys.argv[1:])
