"""What the programs ask of the outside, where there is more than one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # who only needs a clock starts sooner
    from herdsman.fleet.model import Instance, InstanceRef, SpawnRequest
    from herdsman.jobs.model import Claim, ClaimKey
    from herdsman.jobs.protocol import (
        Capabilities,
        ClaimRequest,
        Ending,
        FinishAndClaim,
        Finished,
        Fitness,
        Heard,
        HeartbeatReply,
        ServiceJob,
        ServiceMark,
        StoredFile,
        Verdict,
        WorkerHeartbeat,
    )


class Clock(Protocol):
    """Time inside one process. Instants that decide something come from the database instead."""

    def monotonic(self) -> float: ...

    def sleep(self, duration: timedelta) -> None: ...


class SystemClock:
    """The clock of this machine."""

    monotonic = staticmethod(time.monotonic)

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


class Strand(Protocol):
    """Something that goes on beside whoever started it."""

    def join(self, timeout: float | None = None) -> None: ...


class Threads(Protocol):
    """How one process does several things side by side, and how these wait for each other."""

    def start(self, work: Callable[[], None], name: str) -> Strand:
        """Ends with the process at the latest."""
        ...

    def event(self) -> Event: ...

    def lock(self) -> AbstractContextManager[Any]: ...

    def line(self, name: str) -> Executor:
        """Does what is handed in, one after the other."""
        ...


class SystemThreads:
    """The threads of this machine."""

    def start(self, work: Callable[[], None], name: str) -> Strand:
        thread = Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def event(self) -> Event:
        return Event()

    def lock(self) -> AbstractContextManager[Any]:
        return Lock()

    def line(self, name: str) -> Executor:
        return ThreadPoolExecutor(1, thread_name_prefix=name)


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


@runtime_checkable
class GrowsVolumes(Protocol):
    """A provider whose instances have volumes that can be made larger."""

    def grow_volume(self, ref: InstanceRef, *, seen_gb: float, by_gb: int) -> str:
        """Make the volume of this instance larger, and say what was done.

        `seen_gb` is how large the instance sees it; one that is larger already, and not seen to be, is left alone.
        """
        ...


class ResultStore(Protocol):
    """Keeps the files of jobs, where everybody who is shown a job can get them."""

    def put(self, job_id: str, name: str, content: Iterable[bytes]) -> StoredFile:
        """Whole or not at all. `TooLarge` past a limit, `ServiceUnavailable` otherwise.

        `name` comes from a service and is not trusted: only its last part counts. The same content once more is
        the same file; another content under a name that is taken gets a name of its own.
        """
        ...

    def for_agent(self, agent: str) -> ResultStore:
        """The same store for the jobs of one agent: what it puts is the agent's, and others' files are not there."""
        ...

    def read(self, uri: str) -> Iterator[bytes]:
        """A file that `put` made, here or elsewhere. `NotFound`, `Forbidden` for a place that is not ours.

        Both may come with the first piece only.
        """
        ...

    def find(self, job_id: str, name: str) -> str | None:
        """The reference to a file of a job; None when there is none of that name."""
        ...

    def drop(self, job_id: str) -> None:
        """All files of a job, if there are any."""
        ...


class ResultFiles(ResultStore, Protocol):
    """A result store that can also show parts of its files, as browsers ask for them."""

    def size(self, uri: str) -> int: ...

    def part(self, uri: str, first: int, length: int) -> Iterator[bytes]:
        """So many bytes from the first one on, which is number 0."""
        ...


class Connector(Protocol):
    """Runs jobs on an external service, for one job at a time. Every call ends within seconds.

    `ServiceUnavailable` means that nothing is known: no answer, or not one of this service. It is never a verdict.
    """

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def submit(self, job: ServiceJob, external_id: str) -> str:
        """Executor it over, listening from before it does; the id under which the service knows it.

        `ServiceRejected` promises that nothing was queued, `SubmissionUnknown` does not.
        """
        ...

    def attach(self, job: ServiceJob, external_id: str) -> None:
        """Listens to a job that another process handed over. What was said before is not heard again."""
        ...

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        """The next news of this very job; None after `silence` without any. It reconnects by itself, and never raises
        for a service that is away: who wants to know that asks `check`."""
        ...

    def check(self, external_id: str) -> Verdict:
        """What the service knows now, in an order of looks that cannot miss a job which ends meanwhile."""
        ...

    def fetch(self, job: ServiceJob, external_id: str, finished: Finished) -> object:
        """The result as JSON, its files put into the result store. It may be called again, with the same outcome."""
        ...

    def cancel(self, external_id: str) -> None:
        """Stops this job and no other, waiting or running. It may take a while, and the service may ignore it."""
        ...

    def fitness(self) -> Fitness:
        """Whether the service can take jobs now. Never raises."""
        ...

    def close(self) -> None:
        """The job at hand is over, or given up; another may follow."""
        ...


class WorkQueue(Protocol):
    """Where one worker gets its jobs and says what becomes of them. Each word may be repeated safely.

    `StaleWrite` and `NotFound` mean that the worker itself is no longer wanted: stop. Any other `HerdsmanError`
    means that nothing is known to have arrived.
    """

    def claim(self, ask: ClaimRequest, wait: timedelta = timedelta(0)) -> Sequence[Claim]:
        """The next job, or the next few of one type; none when there is none within `wait`, or for this worker."""
        ...

    def held(self) -> Sequence[ClaimKey]:
        """The claims that this worker holds in the eyes of the queue, heard of or not.

        One that it does not work on is to be given back: a claim that has begun is never handed out again (J11).
        """
        ...

    def start(self, keys: Sequence[ClaimKey]) -> Mapping[ClaimKey, str]:
        """The jobs run from now on. Those that may not, and why: their claims are another's by now."""
        ...

    def beat(self, heartbeat: WorkerHeartbeat) -> HeartbeatReply:
        """Keeps the worker and its claims alive together, and brings back what it must do."""
        ...

    def finish(self, endings: Sequence[Ending], then: ClaimRequest | None = None) -> FinishAndClaim:
        """How jobs ended; one that is refused does not hold up the others. `then` asks for more in the same word."""
        ...

    def get_checkpoint(self, key: ClaimKey) -> object:
        """What an earlier attempt of this job put there; None when there is nothing."""
        ...

    def put_checkpoint(self, key: ClaimKey, value: object) -> None:
        """JSON, replacing what was there. `StaleWrite` when the claim is another's by now."""
        ...

    def mark_service(self, key: ClaimKey, mark: ServiceMark) -> None:
        """Where the job is on an external service; committed when this returns. `StaleWrite` as above."""
        ...

    def leave(self) -> None:
        """Say that this worker takes no more jobs and is about to exit."""
        ...
