"""The socket through which ComfyUI tells a job's news. Nothing is told twice: what was missed is gone."""

import logging
from contextlib import ExitStack
from datetime import timedelta
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from herdsman.connectors.comfyui.messages import FEATURES, Message, read_frame
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.wire import NotAllowed
from herdsman.core.errors import ServiceUnavailable
from herdsman.ports import Clock

PING_S = 10.0
CLOSE_S = 0.5
SHORTEST_OPENING_S = 1.2
"""However short the silence: less would never do for a service far away."""
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
MOST_WAITING = 256
"""Messages that lie here unread: ComfyUI waits with everybody's news while ours do not get through."""


class Socket:
    """One connection at a time: of two with one name, ComfyUI forgets the newer when the older closes."""

    def __init__(self, options: ComfyUIOptions, client_id: str, clock: Clock) -> None:
        self._options = options
        self._url = f"{options.socket_url}?{urlencode({'clientId': client_id})}"
        self._clock = clock
        self._line: ClientConnection | None = None
        self._wait = FIRST_WAIT_S
        self._not_before = 0.0
        self.whole = True
        """It was never away since it was first opened."""

    def open(self) -> None:
        """Until ComfyUI has said something, it might send the job's news to nobody."""
        self.close()
        self._line = self._opened(self._options.timeout_s)

    def hear(self, patience: float) -> str | bytes | None:
        """The next frame; None after `patience` seconds without one. It connects again by itself."""
        deadline = self._clock.monotonic() + patience
        while True:
            line = self._line or self._again(deadline)
            if line is None:
                return None
            try:
                frame = line.recv(timeout=max(deadline - self._clock.monotonic(), 0.0))
            except TimeoutError:
                return None
            except ConnectionClosed:
                self.close()
                self.whole = False
            else:
                self._wait = FIRST_WAIT_S
                return frame

    def close(self) -> None:
        """It has ended when this returns, so that another may have its name."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _again(self, deadline: float) -> ClientConnection | None:
        while True:
            now = self._clock.monotonic()
            pause = max(self._not_before - now, 0.0)
            if now + pause >= deadline:
                self._clock.sleep(timedelta(seconds=max(deadline - now, 0.0)))
                return None
            self._clock.sleep(timedelta(seconds=pause))
            self._wait, self._not_before = min(2 * self._wait, LONGEST_WAIT_S), now + pause + self._wait
            line = self._tried(deadline)
            if line is not None:
                return line

    def _tried(self, deadline: float) -> ClientConnection | None:
        left = max(deadline - self._clock.monotonic(), SHORTEST_OPENING_S)
        try:
            self._line = self._opened(min(left, self._options.timeout_s))
        except ServiceUnavailable:
            return None
        return self._line

    def _opened(self, patience: float) -> ClientConnection:
        deadline = self._clock.monotonic() + patience
        line = self._connected(patience)
        try:
            line.send(FEATURES)
            self._await_first_word(line, deadline)
        except (OSError, WebSocketException) as error:
            line.close()
            raise ServiceUnavailable(
                f"ComfyUI at {self._options.base_url} opened its socket and then said nothing on it:"
                f" {type(error).__name__}"
            ) from error
        return line

    def _connected(self, patience: float) -> ClientConnection:
        try:
            # Entered as newer versions of the library want it; left by `close`, which is enough.
            return ExitStack().enter_context(self._connect(patience))
        except InvalidStatus as error:
            raise self._refusal(error.response.status_code) from error
        except (OSError, WebSocketException) as error:
            raise ServiceUnavailable(
                f"the socket of ComfyUI at {self._options.base_url} could not be opened: {error or 'no answer'}"
            ) from error

    def _connect(self, patience: float) -> ClientConnection:
        return connect(
            self._url,
            additional_headers=self._options.plain_headers(),
            compression=None,
            proxy=None,
            open_timeout=patience,
            close_timeout=CLOSE_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            max_size=self._options.ws_max_size_mb * 1024 * 1024,
            max_queue=MOST_WAITING,
            logger=_quiet(),
        )

    def _refusal(self, status: int) -> ServiceUnavailable:
        said = f"the socket of ComfyUI at {self._options.base_url} was refused with status {status}"
        if status in {401, 403}:
            return NotAllowed(f"{said}; the option headers must hold what the proxy in front asks for")
        return ServiceUnavailable(f"{said}; a proxy in front must let sockets pass to /ws")

    def _await_first_word(self, line: ClientConnection, deadline: float) -> None:
        while True:
            frame = line.recv(timeout=max(deadline - self._clock.monotonic(), 0.0))
            message = read_frame(frame)
            if isinstance(message, Message) and message.type == "status":
                return


def _quiet() -> logging.Logger:
    """Its details are headers, and those are secret."""
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.WARNING)
    return logger
