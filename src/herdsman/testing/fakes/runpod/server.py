"""A Runpod of one's own: it speaks the REST API v2 on a loopback port, and keeps the ground truth."""

import ipaddress
import threading
from datetime import timedelta
from types import TracebackType
from typing import Self

from herdsman.ports import Clock, SystemClock
from herdsman.testing.clocks import Timeline
from herdsman.testing.fakes.app_server import HOST
from herdsman.testing.fakes.runpod.app import BASE, MAX_PAGE, RunpodApi
from herdsman.testing.fakes.runpod.cloud import Cloud
from herdsman.testing.fakes.runpod.faults import Faults
from herdsman.testing.fakes.runpod.ledger import Ledger
from herdsman.testing.fakes.runpod.pods import Pace
from herdsman.testing.fakes.runpod.wire import VOLUMES, NetworkVolume

KEY = "fake-runpod-key-for-trying"
SETTLING_S = 0.02


class FakeRunpod:
    """A fake Runpod, for as long as the block lasts. The same seed gives the same ids, places and faults.

    A pod with a command runs it as a process on this machine, unless `run_commands` is False. Times are those
    of `clock`, `speed` times as fast: with a `ManualClock` nothing moves before the test says so.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        key: str = KEY,
        pace: Pace | None = None,
        clock: Clock | None = None,
        speed: float = 1.0,
        run_commands: bool = True,
        page_size: int = MAX_PAGE,
        volumes: tuple[NetworkVolume, ...] = VOLUMES,
        host: str = HOST,
        port: int = 0,
    ) -> None:
        # Who can reach a fake that runs commands can run anything here.
        if run_commands and host != "localhost" and not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"{host} is open to others: a fake that runs commands listens on loopback only")
        self.key = key
        self.faults = Faults(seed)
        self._cloud = Cloud(
            seed=seed,
            faults=self.faults,
            timeline=Timeline(clock or SystemClock(), speed),
            pace=pace or Pace(),
            run_commands=run_commands,
            page_size=page_size,
            volumes=volumes,
        )
        self.ledger = Ledger(self._cloud)
        self._stopping = threading.Event()
        api = RunpodApi(self._cloud, self.ledger, key=key, stopping=self._stopping, host=host, port=port)
        self._server = api.server
        self._settling = threading.Thread(target=self._settle, daemon=True)

    def __enter__(self) -> Self:
        self._server.start()
        self._settling.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._server.stop()
        self._settling.join()
        self._cloud.close()

    @property
    def origin(self) -> str:
        """Where the ledger is, at `/_ledger`, and the switches of the faults, at `/_faults`."""
        return self._server.url

    @property
    def url(self) -> str:
        """What a client of Runpod takes for the address of the API."""
        return f"{self.origin}{BASE}"

    def add_foreign(self, name: str) -> str:
        """The id of a new pod that somebody else has in the same account."""
        return self._cloud.add_foreign(name).id

    def preempt(self, pod_id: str, *, notice: timedelta | None = None) -> None:
        """Take the machine away: at once, or after the notice."""
        self._cloud.preempt(pod_id, notice)

    def vanish(self, pod_id: str) -> None:
        """The pod is gone, and nobody asked for it."""
        self._cloud.end(self._cloud.ever[pod_id])

    def pid(self, pod_id: str) -> int | None:
        """The process that runs the pod's command; everything in the pod descends from it."""
        container = self._cloud.ever[pod_id].container
        return None if container is None else container.pid

    def _settle(self) -> None:
        while not self._stopping.wait(SETTLING_S):
            self._cloud.settle()
