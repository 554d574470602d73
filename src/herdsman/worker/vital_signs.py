"""The signs of life of a worker's own threads: watched, and shown to probes from outside."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from herdsman.loops.crash_report import read_crashes
from herdsman.loops.health import HealthServer, age_metric, stalls_metric
from herdsman.loops.heartbeat import Heartbeat
from herdsman.loops.watchdog import Notifier, Watchdog


class VitalSigns:
    def __init__(
        self,
        *,
        threshold: float,
        interval: float,
        readiness: float,
        crash_dir: Path,
        address: tuple[str, int] | None,
        keeper: Heartbeat,
        say: Callable[[str], None],
    ) -> None:
        self.supervisor = Heartbeat()
        self._loops: Mapping[str, Heartbeat] = {"supervisor": self.supervisor, "keeper": keeper}
        self._readiness = readiness
        self.address = address
        self._say = say
        self._crash_dir = crash_dir
        self._watchdog = Watchdog(
            list(self._loops.values()),
            stall_threshold=threshold,
            check_interval=interval,
            loop_names=list(self._loops),
            crash_dir=crash_dir,
            notifier=Notifier(),
        )

    @contextmanager
    def shown(self, ready: Callable[[], bool]) -> Generator[None]:
        for crash in read_crashes(self._crash_dir):
            loops = ", ".join(f"{name} for {age:.0f} s" for name, age in crash.stalled.items())
            self._say(f"a worker of this machine was ended at {crash.at}, since it stood still: {loops}")
        self._watchdog.start()
        server = self._server(ready)
        try:
            yield
        finally:
            if server is not None:
                server.stop()
            self._watchdog.stop()

    def _server(self, ready: Callable[[], bool]) -> HealthServer | None:
        if self.address is None:
            return None
        host, port = self.address
        server = HealthServer(
            host=host,
            port=port,
            readiness_check=lambda: ready() and self._fresh(),
            liveness_check=lambda: self._watchdog.alive,
            details=lambda: {"loops": self._ages()},
            metrics=lambda: age_metric(self._ages()) + stalls_metric(self._watchdog.stalls),
        )
        server.start()
        everywhere = host in ("0.0.0.0", "::", "")  # noqa: S104  (no address that can be called)
        self._say(
            f"health endpoints at {f'port {port} of every address' if everywhere else f'{host}:{port}'}"
        )
        return server

    def _ages(self) -> dict[str, float]:
        return {name: round(heartbeat.elapsed(), 1) for name, heartbeat in self._loops.items()}

    def _fresh(self) -> bool:
        return all(age <= self._readiness for age in self._ages().values())
