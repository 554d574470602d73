"""Questions to a ComfyUI that no job asks: only a person who wants to see it all at once."""

from collections.abc import Iterator
from uuid import uuid4

from herdsman.connectors.comfyui.api import Api, NotThere, Wire
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_list, as_number, as_object, as_text, one_line
from herdsman.connectors.comfyui.socket import Socket
from herdsman.ports import SystemClock

NOBODY = "herdsman-check"
MB = 1024 * 1024


class Probes:
    def __init__(self, options: ComfyUIOptions) -> None:
        self._options = options
        self._clock = SystemClock()
        self._wire = Wire(options, self._clock)
        self._api = Api(self._wire)

    def close(self) -> None:
        self._wire.close()

    def devices(self) -> Iterator[tuple[str, int, int]]:
        """Name, memory in all and free memory in MB, of each."""
        for each in as_list(self._api.system_stats().get("devices")):
            told = as_object(each)
            total, free = (as_number(told.get(name)) or 0 for name in ("vram_total", "vram_free"))
            yield one_line(as_text(told.get("name")) or "unnamed", 100), int(total) // MB, int(free) // MB

    def has_jobs_route(self) -> bool:
        """Since 0.6.0 one request tells of a job what takes two otherwise."""
        try:
            self._api.job(NOBODY)
        except NotThere:
            return False
        return True

    def hear(self) -> None:
        """Opens the socket, waits for the first word, and closes it."""
        # Of two sockets with one name the service forgets one: nobody else has this name.
        socket = Socket(self._options, f"{NOBODY}-{uuid4().hex}", self._clock)
        try:
            socket.open()
        finally:
            socket.close()
