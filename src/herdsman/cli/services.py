"""What commands start with: the settings, for some the database, and Ctrl-C for those that run until it comes."""

import math
import signal
import time
from collections.abc import Mapping
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING

from herdsman.cli.output import echo
from herdsman.settings import Settings, advice, load_settings

if TYPE_CHECKING:
    from herdsman.context import Services

_STEP_S = 1.0


def warned_settings(given: Mapping[str, str] | None = None) -> Settings:
    """The settings in force; `given` overrides all others, as the command line does."""
    settings = load_settings(given=given)
    for warning in advice(settings):
        echo(f"warning: {warning}", err=True)
    return settings


def settings_here(given: Mapping[str, str] | None = None) -> Settings:
    """The same for a command that logs, as its settings say."""
    # A command that only calls the API logs nothing, and starts sooner without the library.
    from herdsman.settings.environment import instance_name  # noqa: PLC0415
    from herdsman.telemetry.logs import configure_logs  # noqa: PLC0415

    settings = warned_settings(given)
    logs = settings.logs
    configure_logs(logs.log_level, logs.log_format, file=logs.log_file, instance=instance_name(settings))
    return settings


def services_here(settings: Settings | None = None) -> "Services":
    """On a database whose schema has been checked."""
    # Slow to import, and not installed on the machine of a worker.
    from herdsman.db.checks import require_current  # noqa: PLC0415
    from herdsman.server.wiring import open_services  # noqa: PLC0415

    services = open_services(settings or settings_here())
    require_current(services.database)
    return services


class Stopping(Event):
    """Set by the first Ctrl-C; the next ones are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        # A signal handler that takes a lock may deadlock with a second signal: a thread does the work.
        signals: SimpleQueue[int] = SimpleQueue()

        def listen() -> None:
            while signals.get():
                self.asked += 1
                self.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _frame: signals.put(number))
        Thread(target=listen, name="signals", daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        """In steps: a signal that another thread receives does not interrupt a wait of the main thread, where Python
        alone handles signals."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not super().wait(min(_STEP_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        return True
