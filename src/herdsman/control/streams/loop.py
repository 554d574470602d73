"""One thread that takes turns until it is told to stop. Whatever goes wrong, it waits a moment and goes on."""

from collections.abc import Callable
from threading import Event

import structlog

from herdsman.bus.errors import BusUnavailable
from herdsman.control.streams.state import BusState
from herdsman.core.errors import StoreUnavailable
from herdsman.ports import Strand, SystemThreads, Threads

log = structlog.get_logger()

SHORTEST_S, LONGEST_S = 0.2, 2.0


class Loop:
    def __init__(
        self,
        name: str,
        turn: Callable[[], None],
        state: BusState,
        stopping: Event,
        after_fault: Callable[[], None],
        threads: Threads | None = None,
    ) -> None:
        """`turn` waits by itself when there is nothing to do, and not for long."""
        self._name = name
        self._turn = turn
        self._state = state
        self._stopping = stopping
        self._after_fault = after_fault
        self._threads = threads or SystemThreads()
        self._thread: Strand | None = None

    def start(self) -> None:
        self._thread = self._threads.start(self._run, f"streams-{self._name}")

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = SHORTEST_S
        while not self._stopping.is_set():
            if self._try():
                pause = SHORTEST_S
            else:
                self._stopping.wait(pause)
                pause = min(pause * 2, LONGEST_S)

    def _try(self) -> bool:
        try:
            self._turn()
        except StoreUnavailable as error:  # Redis is not to blame, and the entries stay where they are
            log.debug("streams.postponed", loop=self._name, reason=str(error))
            return False
        except BusUnavailable as error:
            self._state.failed(self._name, str(error))
            self._after_fault()
            return False
        except Exception as error:  # noqa: BLE001  (what an odd server says must not end the thread)
            self._state.failed(self._name, f"{type(error).__name__}: {error}")
            self._after_fault()
            return False
        self._state.fine(self._name)
        return True
