"""A ComfyUI of one's own: it speaks HTTP and WebSocket on a loopback port, and keeps the ground truth."""

import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Self

from herdsman.testing.fakes.app_server import HOST
from herdsman.testing.fakes.comfyui.app import ComfyUiApi
from herdsman.testing.fakes.comfyui.execution import MEGABYTE, Life, Setup, read_version
from herdsman.testing.fakes.comfyui.faults import USUAL_STEP, Fault, Setting
from herdsman.testing.fakes.comfyui.files import Place
from herdsman.testing.fakes.comfyui.prompts import Ledger, Past

POLL_S = 0.005
DOWN_S = 0.2


class FakeComfyUI:
    """A fake ComfyUI, for as long as the block lasts.

    All times are `speed` times shorter than what a workflow or a fault says. The same seed gives the same ids;
    the same workflow gives the same bytes, whatever the seed.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        speed: float = 1.0,
        version: str = "0.7.0",
        host: str = HOST,
        port: int = 0,
        max_upload_mb: int = 100,
    ) -> None:
        self._setup = Setup(
            version=read_version(version), speed=speed, random=Random(seed), most_upload_bytes=max_upload_mb * MEGABYTE
        )
        self._server = ComfyUiApi(lambda: self._lives[-1], host=host, port=port).server
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._returning: list[threading.Thread] = []
        self._lives: list[Life] = []
        self._up = False

    def __enter__(self) -> Self:
        self._begin(None)
        self._server.start()
        self._up = True
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            last = self._go_down()
        for thread in self._returning:
            thread.join()
        for life in self._lives:
            life.thread.join()
        self._server.stop(spare=last.hub.clients)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def ledger(self) -> Ledger:
        return self._setup.ledger

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Method and path of each, in the order of arrival."""
        return [(asked.method, asked.path) for asked in self.ledger.requests]

    @property
    def runs(self) -> int:
        """How often any job was worked on, cached or not."""
        return len(self.ledger.renders)

    @property
    def sockets(self) -> int:
        """How many WebSockets are open."""
        with self._lock:
            return len(self._lives[-1].hub.clients) if self._up else 0

    @property
    def up(self) -> bool:
        return self._up

    @property
    def restarts(self) -> int:
        """How often it has come back."""
        with self._lock:
            return len(self._lives) - 1

    def renders(self, prompt_id: str) -> int:
        """How often this job was worked on, cached or not, finished or not."""
        return len(self.ledger.of(prompt_id))

    def outputs(self, prompt_id: str) -> dict[str, Any]:
        """What the last render of this job made, by node, whether or not the service still knows."""
        ended = [render for render in self.ledger.of(prompt_id) if render.end not in (None, "killed")]
        return dict(ended[-1].outputs) if ended else {}

    def content(self, filename: str, subfolder: str = "", type: str = "output") -> bytes:  # noqa: A002  their word
        """The bytes of a file, as `/view` would give them."""
        file = self._setup.files.find(Place(filename, subfolder, type))
        if file is None:
            raise FileNotFoundError(f"the fake has no file {filename!r} in {type}/{subfolder}")
        return b"".join(file.read(0, file.length))

    def delete_file(self, filename: str, subfolder: str = "", type: str = "output") -> None:  # noqa: A002  their word
        """As somebody would who cleans up behind the service's back."""
        self._setup.files.remove(Place(filename, subfolder, type))

    def add_fault(
        self,
        fault: Fault,
        *,
        times: int | None = 1,
        at: str | None = None,
        prompt_id: str | None = None,
        **details: object,
    ) -> None:
        """`times` is None for ever; what `at` and the details may be stands beside each fault."""
        at = at or USUAL_STEP.get(fault)
        self._setup.faults.add(Setting(fault=fault, times=times, at=at, prompt_id=prompt_id, details=details))

    def clear_faults(self) -> None:
        self._setup.faults.clear()

    def struck(self, fault: Fault) -> int:
        """How often it has really hit; a test of a fault that never did proves nothing."""
        return self._setup.faults.struck(fault)

    def restart(self, *, lose_history: bool = True, down_s: float = 0.0) -> None:
        """Dies at once, and is back after `down_s`, which is not waited for; `up` tells."""
        with self._lock:
            if self._closed.is_set() or any(thread.is_alive() for thread in self._returning):
                return
            old = self._go_down()
            kept = None if lose_history else old.jobs.past()
            self._setup.files.wipe_temp()

            def come_back() -> None:
                self._closed.wait(down_s / self._setup.speed)
                with self._lock:
                    if not self._closed.is_set():
                        self._begin(kept)
                        self._server.open()
                        self._up = True

            if down_s <= 0:
                come_back()
                return
            thread = threading.Thread(target=come_back, daemon=True)
            self._returning.append(thread)
            thread.start()

    def crash(self) -> None:
        """Dies, and stays so until `restart`: whoever connects is refused."""
        with self._lock:
            self._go_down()

    def wait_for(self, predicate: Callable[[], object], seconds: float = 10.0) -> bool:
        """True once it holds; `TimeoutError` if it does not within real seconds."""
        deadline = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > deadline:
                raise TimeoutError(f"what was waited for did not happen within {seconds} s")
            time.sleep(POLL_S)
        return True

    def _begin(self, history: dict[str, Past] | None) -> None:
        life = Life(self._setup, self._die, number=len(self._lives), history=history)
        self._lives.append(life)
        life.thread.start()

    def _go_down(self) -> Life:
        """WebSockets are spared: they end by themselves, once all is out that was sent before."""
        self._up = False
        life = self._lives[-1]
        spare = life.hub.clients
        life.end()
        self._server.close(spare=spare)
        return life

    def _die(self, setting: Setting | None) -> None:
        """Restarts as the fault says; without one, the service crashes."""
        if setting is None:
            self.crash()
            return
        self.restart(
            lose_history=setting.details.get("lose_history", True) is not False, down_s=setting.number("down_s", DOWN_S)
        )
