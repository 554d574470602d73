"""A service whose answer is the result: the call runs beside us, and can be cut."""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from herdsman.connectors.http.wire import Answer, Question
from herdsman.core.errors import HerdsmanError

_CUT_S = 5.0


class SyncCall:
    """One call. `begin` returns once the request is out, so that who is not there is known at once."""

    def __init__(self, external_id: str, ask: Callable[[Question], Answer], question: Question) -> None:
        self.external_id = external_id
        self._question = replace(question, trace=self._trace)
        self._ask = ask
        self._sent = False
        self._begun = threading.Event()
        self._over = threading.Event()
        self._stream: Any = None
        self._outcome: Answer | HerdsmanError | None = None
        self._thread = threading.Thread(target=self._run, name=f"call {external_id}", daemon=True)

    def begin(self, wait: timedelta) -> None:
        """Raises what went wrong before anything was sent."""
        self._thread.start()
        self._begun.wait(wait.total_seconds())
        if not self._sent and isinstance(self._outcome, HerdsmanError):
            raise self._outcome

    def wait(self, silence: timedelta) -> bool:
        """Whether it is over."""
        return self._over.wait(silence.total_seconds())

    @property
    def outcome(self) -> Answer | HerdsmanError | None:
        """None while nothing came back."""
        return self._outcome if self._over.is_set() else None

    def cut(self) -> None:
        """Closing a socket wakes nobody who waits on it; shutting it down does."""
        if self._stream is not None and not self._over.is_set():
            with suppress(OSError):
                self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        if self._thread.is_alive():
            self._thread.join(_CUT_S)

    def _run(self) -> None:
        try:
            self._outcome = self._ask(self._question)
        except HerdsmanError as error:
            self._outcome = error
        finally:
            self._over.set()
            self._begun.set()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._stream = info["return_value"]
        elif event.endswith("send_request_body.complete"):
            self._sent = True
            self._begun.set()
