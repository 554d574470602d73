"""What the programs ask of the outside, where there is more than one answer."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from herdsman.core.gpu import GpuReport
from herdsman.core.instances import Instance, InstanceRef, SpawnRequest
from herdsman.core.model import Beat, Claim, ClaimKey, Failure
from herdsman.core.states import JobState


class Clock(Protocol):
    """Time inside one process. Instants that decide something come from the database instead."""

    def monotonic(self) -> float: ...

    def sleep(self, duration: timedelta) -> None: ...


class Provider(Protocol):
    """A place that rents or runs GPU workers. One answer of it is not a fact: the caller looks again."""

    @property
    def name(self) -> str: ...

    def spawn(self, request: SpawnRequest) -> Instance:
        """Start one instance under exactly `request.name`; ask once, never again by itself.

        `CapacityUnavailable`, `ProviderUnavailable` and `ProviderRejected` promise that nothing was started.
        `SpawnUnknown` does not: the instance may be there, and may show up in listings minutes later.
        """
        ...

    def find(self, ref: InstanceRef) -> Instance | None:
        """The instance as it is now; None when the provider knows none. A young one may be missed."""
        ...

    def terminate(self, ref: InstanceRef) -> None:
        """Ask for the end of an instance. Succeeds if it is already gone; success is no proof of the end."""
        ...

    def list_instances(self) -> Sequence[Instance]:
        """Every instance of this deployment, or an error; never a part of them."""
        ...

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        """The last lines that the instance wrote, for a person; empty when there are none to be had."""
        ...


class WorkQueue(Protocol):
    """Where one worker gets its jobs and says what becomes of them. Each word may be repeated safely.

    `StaleWrite` and `NotFound` mean that the claim, or the worker itself, is no longer wanted: stop. Any other
    `HerdsmanError` means that nothing is known to have arrived.
    """

    def claim(self, types: Sequence[str]) -> Claim | None:
        """The next job of one of these types; None when there is none, or when this worker may not have one."""
        ...

    def start(self, key: ClaimKey) -> None: ...

    def beat(self, key: ClaimKey | None, report: GpuReport | None = None) -> Beat:
        """Keeps the worker and its claim alive together, and brings back what it must do."""
        ...

    def progress(self, key: ClaimKey, done: float, note: str | None = None) -> None: ...

    def complete(self, key: ClaimKey, result: object) -> JobState:
        """What the job became: `done`, or `cancelled` when the result came too late."""
        ...

    def fail(self, key: ClaimKey, failure: Failure) -> JobState: ...

    def release(self, key: ClaimKey, why: str) -> JobState:
        """Give the job back unharmed; one that was cancelled becomes `cancelled`."""
        ...

    def leave(self) -> None:
        """Say that this worker takes no more jobs and is about to exit."""
        ...
