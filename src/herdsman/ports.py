"""What the programs ask of the outside, where there is more than one answer."""

from datetime import timedelta
from typing import Protocol


class Clock(Protocol):
    """Time inside one process. Instants that decide something come from the database instead."""

    def monotonic(self) -> float: ...

    def sleep(self, duration: timedelta) -> None: ...
