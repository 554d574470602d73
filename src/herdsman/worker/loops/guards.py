"""The watchdog and the health server of a group."""

from functools import partial
from pathlib import Path

from herdsman.worker.loops.adaptive import Threshold
from herdsman.worker.loops.board import Board, Seat
from herdsman.worker.loops.ending import give_back
from herdsman.worker.loops.health_server import HealthServer
from herdsman.worker.loops.metrics import age_metric, stalls_metric
from herdsman.worker.loops.systemd import Notifier
from herdsman.worker.loops.watchdog import Watchdog


class Guards:
    def __init__(
        self,
        board: Board,
        notifier: Notifier,
        *,
        threshold: float | Threshold | None,
        interval: float,
        crash_dir: Path | None,
        host: str,
        port: int | None,
    ) -> None:
        self._board = board
        beating = any(seat.heartbeat is not None for seat in board.seats)
        self.watchdog: Watchdog | None = None
        if threshold is not None and beating:
            self.watchdog = Watchdog(
                [],
                stall_threshold=threshold,
                check_interval=min(interval, notifier.period or interval),
                crash_dir=crash_dir,
                notifier=notifier,
            )
            for seat in board.seats:
                self.watchdog.before_kill(partial(give_back, seat))
        self.server: HealthServer | None = None
        if port is not None:
            self.server = HealthServer(
                host=host,
                port=port,
                readiness_check=self._ready,
                liveness_check=self._alive,
                details=board.details,
                metrics=self._metrics,
            )

    def start(self) -> None:
        if self.watchdog is not None:
            self.watchdog.start()
        if self.server is not None:
            self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
        if self.watchdog is not None:
            self.watchdog.stop()

    def watch(self, seat: Seat) -> None:
        if self.watchdog is not None and seat.heartbeat is not None:
            self.watchdog.watch(seat.name, seat.heartbeat)

    def forget(self, seat: Seat) -> None:
        if self.watchdog is not None and seat.heartbeat is not None:
            self.watchdog.forget(seat.heartbeat)

    def _alive(self) -> bool:
        """Without its watchdog a stuck process would stay for ever; whoever probes it ends it instead."""
        return self.watchdog is None or self.watchdog.alive

    def _ready(self) -> bool:
        return self._alive() and self._board.ready()

    def _metrics(self) -> str:
        counted = dict[str, int]() if self.watchdog is None else self.watchdog.stalls
        stalls = {seat.name: counted.get(seat.name, 0) for seat in self._board.seats}
        return age_metric(self._board.ages()) + stalls_metric(stalls)
