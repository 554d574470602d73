"""What a group asks of the loops that it runs."""

from typing import Protocol

from herdsman.worker.loops.heartbeat import Heartbeat


class Runnable(Protocol):
    """A loop. A `name`, `pause()` and `give_back()` are used where there are such."""

    @property
    def running(self) -> bool: ...

    @property
    def heartbeat(self) -> Heartbeat | None:
        """None when nobody can tell from outside whether it stands still."""
        return None

    def run(
        self,
        max_iterations: int | None = None,
        visibility_timeout: float = 1800,
        wait_time_seconds: float = 30,
    ) -> None: ...

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Ask it to end and wait; False when it has not ended in time."""
        ...
