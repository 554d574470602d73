"""What a handler is given: its job, the words that it may say about it, and the exceptions that it may raise."""

import math
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Protocol
from weakref import finalize

from herdsman.errors import InvalidRequest
from herdsman.ids import check_model
from herdsman.jobs.protocol import MarkStatus

LONGEST_ERROR = 8000
CANCELLED = "cancelled"
_FULL_NAMES = ("OutOfMemory", "OutOfMemoryError", "OutOfMemoryException")
# PyTorch, CuPy, JAX and cuDNN have words of their own for a full GPU; they are all we can go by.
_FULL_WORDS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "HIP out of memory",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED",
)


class UserError(Exception):
    """The job can never succeed as it is: it is not tried again."""


class TryAgain(Exception):
    """The machine or a service failed, and not the job: it is tried again later."""


class Cancelled(Exception):
    """The job was asked to stop, and does."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A result that had been made before, and was only found."""

    result: object
    seconds: float
    """The GPU time that this spared."""


class Link(Protocol):
    """The way from a job to its supervisor."""

    def tell(self, job_id: str, word: Mapping[str, object]) -> None: ...

    def ask(self, job_id: str, word: Mapping[str, object]) -> Any: ...

    def cancelled(self, job_id: str) -> bool: ...

    def why_stopped(self, job_id: str) -> str | None: ...


@dataclass(slots=True)
class Alone:
    """Without a supervisor, as in the tests of a handler: what is said is kept here."""

    said: list[Mapping[str, object]] = field(default_factory=list[Mapping[str, object]])
    saved: Any = None
    stop: bool = False
    reason: str | None = None

    def tell(self, job_id: str, word: Mapping[str, object]) -> None:  # noqa: ARG002  there is only one job
        self.said.append(word)

    def ask(self, job_id: str, word: Mapping[str, object]) -> Any:  # noqa: ARG002
        if "service" in word:
            self.said.append(word)
            return None
        if word["checkpoint"] == "put":
            self.saved = word["value"]
        return self.saved

    def cancelled(self, job_id: str) -> bool:  # noqa: ARG002
        return self.stop

    def why_stopped(self, job_id: str) -> str | None:  # noqa: ARG002
        return self.reason


@dataclass(slots=True, kw_only=True, weakref_slot=True, eq=False)
class JobContext:
    """One attempt at one job. Its words may be said from any thread of the handler."""

    type: str
    payload: Any = field(default_factory=dict[str, Any])
    job_id: str = "job"
    agent: str = ""
    """For whom it runs."""
    attempt: int = 1
    token: int = 1
    """That of its claim: it rises with each."""
    service_job_id: str | None = None
    """Under which an earlier claim handed it to an external service."""
    model: str | None = None
    """What the job names to run with, else the model of its pool."""
    adapter: str | None = None
    """That of its pool; None for a job that names another model."""
    variant: str | None = None
    deadline: float | None = None
    """When its time is up, on `time.monotonic()`; None when it has no timeout."""
    place: Path | None = None
    link: Link = field(default_factory=Alone)

    @property
    def workspace(self) -> Path:
        """A directory for this attempt alone; it is deleted when the attempt ends."""
        if self.place is None:
            self.place = Path(mkdtemp(prefix="herdsman-job-"))
            finalize(self, rmtree, self.place, ignore_errors=True)
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.place

    def remaining(self) -> float | None:
        """Seconds until its time is up, never below 0; None when it has no timeout."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def progress(self, done: float, note: str | None = None) -> None:
        """How far it has come, from 0 to 1, and a word about it. It goes out with the next heartbeat."""
        if not math.isfinite(done):
            raise ValueError(f"progress is {done}: it must be from 0 to 1")
        share = min(1.0, max(0.0, float(done)))
        self.link.tell(self.job_id, {"progress": share, "note": None if note is None else str(note)})

    def log(self, text: str) -> None:
        """A line for the log of this attempt; what the handler prints goes there too."""
        self.link.tell(self.job_id, {"log": str(text)})

    @property
    def cancelled(self) -> bool:
        """Whether the job should stop now: cancelled, out of time, or its worker leaves."""
        return self.link.cancelled(self.job_id)

    @property
    def stop_reason(self) -> str | None:
        """Why it is asked to stop: CANCELLED, TIMEOUT, DRAINED, ...; None while it is not."""
        return self.link.why_stopped(self.job_id)

    def mark_service(self, external_id: str, status: MarkStatus) -> None:
        """Where the job is on an external service: written down for good when this returns."""
        self.link.ask(self.job_id, {"service": {"id": external_id, "status": status.value}})

    def raise_if_cancelled(self) -> None:
        if self.link.cancelled(self.job_id):
            raise Cancelled(f"job {self.job_id} was asked to stop")

    def checkpoint(self) -> Any:
        """What an earlier attempt of this job saved; None when there is nothing."""
        return self.link.ask(self.job_id, {"checkpoint": "get"})

    def save_checkpoint(self, value: object) -> None:
        """JSON for the next attempt, should this one not come to its end; it replaces what was there."""
        self.link.ask(self.job_id, {"checkpoint": "put", "value": value})

    def loaded(self, *models: str) -> None:
        """This process has these loaded from now on, until it says otherwise: jobs that name them come here first."""
        self.link.tell(self.job_id, {"loaded": _checked(models)})

    def unloaded(self, *models: str) -> None:
        self.link.tell(self.job_id, {"unloaded": _checked(models)})


@dataclass(slots=True, kw_only=True, eq=False)
class Setup:
    """What a handler's process is started for, before its first job."""

    model: str | None = None
    """The model of its pool."""
    adapter: str | None = None
    variant: str | None = None
    preload: tuple[str, ...] = ()
    """Further models that its pool wants before the first job."""
    revision: int = 0
    """The edition of all this; it rises when the pool is to serve something else."""
    link: Link = field(default_factory=Alone)

    @property
    def wanted(self) -> tuple[str, ...]:
        """All of them, the model first. They count as loaded once every setup has returned."""
        return tuple(dict.fromkeys([each for each in (self.model, *self.preload) if each is not None]))

    def loaded(self, *models: str) -> None:
        """These are loaded too."""
        self.link.tell("", {"loaded": _checked(models)})

    def unloaded(self, *models: str) -> None:
        self.link.tell("", {"unloaded": _checked(models)})


def _checked(models: tuple[str, ...]) -> list[str]:
    for each in models:
        try:
            check_model("model", each)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
    return list(models)


def failure_message(error: BaseException) -> dict[str, str]:
    """The class of a failure, and what is shown of it."""
    match error:
        case UserError():
            kind = "user_error"
        case TryAgain():
            kind = "infrastructure"
        case Cancelled():
            kind = CANCELLED
        case _:
            kind = "out_of_memory" if out_of_memory(error) else "job_error"
            text = "".join(traceback.format_exception(error))[-LONGEST_ERROR:]
            return {"failure": kind, "error": text}
    return {"failure": kind, "error": str(error)[:LONGEST_ERROR]}


def out_of_memory(error: BaseException) -> bool:
    """The cause counts too: libraries wrap what they catch."""
    seen: set[int] = set()
    here: BaseException | None = error
    while here is not None and id(here) not in seen:
        seen.add(id(here))
        named = isinstance(here, MemoryError) or type(here).__name__ in _FULL_NAMES
        if named or any(word in str(here) for word in _FULL_WORDS):
            return True
        here = here.__cause__ or here.__context__
    return False
