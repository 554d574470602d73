"""Real processes that a test may kill, stop and replace. They are made by forking, so that one is there at once."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from typing import Any

GRACE_S = 20.0


class Children:
    def __init__(self, *preload: str) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        self._all: dict[str, ForkServerProcess] = {}

    def start(self, name: str, program: Callable[..., None], *arguments: Any) -> None:
        child = self._context.Process(target=program, args=arguments, name=name, daemon=True)
        child.start()
        self._all[name] = child

    @property
    def names(self) -> list[str]:
        return list(self._all)

    def alive(self, name: str) -> bool:
        return self._all[name].is_alive()

    def kill(self, name: str) -> None:
        """As the out-of-memory killer would: without a word."""
        child = self._all.pop(name)
        child.kill()
        child.join(GRACE_S)

    def ask_to_stop(self, name: str) -> None:
        child = self._all.pop(name)
        child.terminate()
        child.join(GRACE_S)
        assert child.exitcode == 0, f"{name} ended with {child.exitcode}"

    def pause(self, name: str) -> None:
        os.kill(self._pid(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self._pid(name), signal.SIGCONT)

    def _pid(self, name: str) -> int:
        pid = self._all[name].pid
        assert pid is not None
        return pid


@contextmanager
def children(*preload: str) -> Generator[Children]:
    """None of them outlives the block."""
    family = Children(*preload)
    try:
        yield family
    finally:
        for name in family.names:
            family.kill(name)
