"""The socket through which ComfyUI tells a job's news: JSON as text, images as bytes. What was missed is gone."""

import json
import logging
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from herdsman.connectors.comfyui.api import NotAllowed
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_object, as_text
from herdsman.errors import ServiceUnavailable
from herdsman.ports import Clock

_WORD = struct.Struct(">I")
_KINDS = {1: "image/jpeg", 2: "image/png"}
_MOST_NAMES = 1 << 20

FEATURES = json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
"""Said first, it makes images come with the id of their job."""
PING_S = 10.0
CLOSE_S = 0.5
SHORTEST_OPENING_S = 1.2
"""However short the silence: less would never do for a service far away."""
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
MOST_WAITING = 256
"""Messages that lie here unread: ComfyUI waits with everybody's news while ours do not get through."""


@dataclass(frozen=True, slots=True)
class Message:
    type: str
    data: Mapping[str, object]

    @property
    def prompt_id(self) -> str | None:
        return as_text(self.data.get("prompt_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A preview, or an output that comes by no other way."""

    content: bytes
    content_type: str
    node: str | None = None
    """None where ComfyUI did not say whose it is."""
    prompt_id: str | None = None


def read_frame(frame: str | bytes) -> Message | Picture | None:
    """None for what is not understood: custom nodes send whatever they like."""
    if isinstance(frame, str):
        said = _read_object(frame) or {}
        kind = as_text(said.get("type"))
        return None if kind is None else Message(kind, as_object(said.get("data")))
    if len(frame) < 2 * _WORD.size:
        return None
    event, word = _WORD.unpack_from(frame)[0], _WORD.unpack_from(frame, _WORD.size)[0]
    rest = frame[2 * _WORD.size :]
    match event:
        case 1 if word in _KINDS:
            return Picture(content=rest, content_type=_KINDS[word])
        case 4 if word <= min(len(rest), _MOST_NAMES) and (names := _read_object(rest[:word])) is not None:
            return Picture(
                content=rest[word:],
                content_type=as_text(names.get("image_type")) or "image/jpeg",
                node=as_text(names.get("real_node_id")) or as_text(names.get("node_id")),
                prompt_id=as_text(names.get("prompt_id")),
            )
        case _:
            return None


def _read_object(text: str | bytes) -> Mapping[str, object] | None:
    """None where it is no JSON."""
    try:
        return as_object(json.loads(text))
    except (ValueError, RecursionError):
        return None


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
            left = max(deadline - self._clock.monotonic(), SHORTEST_OPENING_S)
            with suppress(ServiceUnavailable):
                self._line = self._opened(min(left, self._options.timeout_s))
                return self._line

    def _opened(self, patience: float) -> ClientConnection:
        deadline = self._clock.monotonic() + patience
        line = self._connected(patience)
        try:
            line.send(FEATURES)
            message = None
            while not (isinstance(message, Message) and message.type == "status"):
                message = read_frame(line.recv(timeout=max(deadline - self._clock.monotonic(), 0.0)))
        except (OSError, WebSocketException) as error:
            line.close()
            raise ServiceUnavailable(
                f"ComfyUI at {self._options.base_url} opened its socket and then said nothing on it:"
                f" {type(error).__name__}"
            ) from error
        return line

    def _connected(self, patience: float) -> ClientConnection:
        # Its details are headers, and those are secret.
        logger = logging.getLogger(__name__)
        logger.setLevel(logging.WARNING)
        try:
            connection = connect(
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
                logger=logger,
            )
            # Entered as newer versions of the library want it; left by `close`, which is enough.
            return ExitStack().enter_context(connection)
        except InvalidStatus as error:
            status = error.response.status_code
            said = f"the socket of ComfyUI at {self._options.base_url} was refused with status {status}"
            if status in {401, 403}:
                raise NotAllowed(f"{said}; the option headers must hold what the proxy in front asks for") from error
            raise ServiceUnavailable(f"{said}; a proxy in front must let sockets pass to /ws") from error
        except (OSError, WebSocketException) as error:
            raise ServiceUnavailable(
                f"the socket of ComfyUI at {self._options.base_url} could not be opened: {error or 'no answer'}"
            ) from error
