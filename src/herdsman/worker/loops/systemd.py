"""Tells systemd that the service is ready, alive or stopping, where systemd asks to be told."""

import logging
import os
import socket
from collections.abc import Mapping

logger = logging.getLogger(__name__)


class Notifier:
    """Speaks on the socket that systemd names in the environment; without one it is silent."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self.period = _period(environment)
        """Seconds between signs of life, half of what systemd waits for; None when it waits for none."""

    def ready(self) -> None:
        self._send(b"READY=1")

    def alive(self) -> None:
        if self.period is not None:
            self._send(b"WATCHDOG=1")

    def stopping(self) -> None:
        self._send(b"STOPPING=1")

    def _send(self, state: bytes) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(0)  # a full socket must not hold up whoever is alive
                channel.sendto(state, self._address)
        except OSError as error:
            logger.warning("systemd was not told %s: %s", state.decode(), error)


def _address(name: str) -> bytes | None:
    """A leading @ stands for the zero byte of an abstract socket."""
    if not name.startswith(("/", "@")):
        return None
    return os.fsencode(f"\0{name[1:]}" if name.startswith("@") else name)


def _period(environment: Mapping[str, str]) -> float | None:
    wanted, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not wanted.isdecimal() or int(wanted) == 0 or owner not in ("", str(os.getpid())):
        return None
    return int(wanted) / 1_000_000 / 2
