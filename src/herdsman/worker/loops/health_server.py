"""Answers probes over HTTP: whether the process lives, whether it is ready, and its metrics."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus

from herdsman.worker.loops.http_door import Answer, Door
from herdsman.worker.loops.metrics import ready_metric
from herdsman.worker.loops.readiness import Readiness

logger = logging.getLogger(__name__)

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def _always() -> bool:
    return True


def _no_metrics() -> str:
    return ""


class HealthServer:
    """Probes for whoever watches the process from outside; runs in daemon threads until `stop`."""

    def __init__(
        self,
        *,
        host: str = "0.0.0.0",  # noqa: S104  a probe comes from outside of the container
        port: int = 8080,
        readiness_check: Callable[[], bool] | None = None,
        liveness_check: Callable[[], bool] | None = None,
        details: Callable[[], Mapping[str, object]] | None = None,
        metrics: Callable[[], str] | None = None,
        readiness_timeout: float = 1.0,
    ) -> None:
        self._host, self._port = host, port
        self._alive = liveness_check or _always
        self._metrics = metrics or _no_metrics
        self._readiness = Readiness(
            readiness_check or _always, details or dict[str, object], timeout=readiness_timeout
        )
        self._lock = threading.Lock()
        self._door: Door | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None while it does not."""
        door = self._door
        return None if door is None else (str(door.server_address[0]), int(door.server_address[1]))

    def start(self) -> None:
        with self._lock:
            if self._door is not None:
                return
            self._door = door = Door(self._host, self._port, self._respond)
            self._thread = threading.Thread(
                target=door.serve_forever, kwargs={"poll_interval": 0.05}, name="health", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        with self._lock:
            door, self._door = self._door, None
            thread, self._thread = self._thread, None
        if door is not None and thread is not None:
            door.shutdown()
            door.server_close()
            door.cut_all()
            thread.join()

    def _respond(self, method: str, path: str) -> Answer:  # noqa: ARG002  HEAD is GET without its body
        match path:
            case "/health/live":
                return self._live()
            case "/health/ready":
                verdict = self._readiness.ask()
                return _health(verdict.details, ok=verdict.ready)
            case "/metrics":
                return self._measured()
            case _:
                return Answer(HTTPStatus.NOT_FOUND, _json({"error": "not found", "path": path}))

    def _live(self) -> Answer:
        try:
            alive = bool(self._alive())
        except Exception:
            logger.exception("the liveness check failed")
            alive = False
        return _health({}, ok=alive)

    def _measured(self) -> Answer:
        try:
            text = ready_metric(ready=self._readiness.ask().ready) + self._metrics()
        except Exception as error:
            logger.exception("the metrics could not be collected")
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, _json({"error": repr(error)}))
        return Answer(HTTPStatus.OK, text.encode(), PROMETHEUS)


def _health(details: Mapping[str, object], *, ok: bool) -> Answer:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    word = "healthy" if ok else "unhealthy"
    return Answer(status, _json({"status": word, **details} | {"status": word}))


def _json(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, default=str).encode()
