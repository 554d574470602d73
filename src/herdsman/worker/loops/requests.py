"""What is sent to a main loop, and what it sends back."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from herdsman.worker.loops.mailbox import Mailbox

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")

# No slots in what is generic: with them, `MainLoopRequest[X](...)` is an error on Python 3.11.


@dataclass(frozen=True, kw_only=True)
class MainLoopResult(Generic[OutputT]):
    """One of `output` and `error` counts: the error is None when the work was done."""

    message_id: str
    output: OutputT | None = None
    error: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class MainLoopRequest(Generic[RequestT]):
    request: RequestT
    reply_to: Mailbox[MainLoopResult[object]] | None = None
    trace_id: str | None = None
