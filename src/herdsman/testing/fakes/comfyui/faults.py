"""What can go wrong at a ComfyUI, each to be switched on at will, and for how often."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

STEPS = (
    "queued",
    "execution_start",
    "execution_cached",
    "progress_state",
    "executing",
    "progress",
    "executed",
    "execution_success",
    "history",
    "executing:null",
    "done",
)
"""The life of a job in order: what may stand for `at`. A message may be narrowed to a node, `executing:3`,
or be counted, `7` for the seventh message of the job."""


class Fault(StrEnum):
    """Beside each: what its `at` narrows it to, and the details that it takes."""

    # What a socket gets; at: a step that is a message.
    COMPLETION_NEVER_SENT = "completion_never_sent"
    """The job ends, and neither of the messages that say so is sent."""
    CUT_SOCKET = "cut_socket"
    """The connection ends without a word, instead of the message."""
    DEAF_SOCKET = "deaf_socket"
    """Open, and it answers pings; but from this message on nothing is sent."""
    DUPLICATE_CLIENT = "duplicate_client"
    """An older socket of the same client id closes, which takes the place of this one away."""

    # The whole service; at: any step; details: down_s, lose_history.
    RESTART = "restart"

    # Inside a node; at: its id or its class; details: message, kind.
    NODE_ERROR = "node_error"
    NODE_HANGS = "node_hangs"
    EXECUTION_DIES = "execution_dies"
    """The node ends the thread that runs jobs: its own stays in the queue as running, later ones are taken and wait, and
    everything else answers as if nothing had happened, until a restart."""

    # After the end of a job; details: seconds.
    NO_HISTORY_YET = "no_history_yet"

    INTERRUPT_IGNORED = "interrupt_ignored"

    # POST /prompt.
    ERROR_AFTER_QUEUEING = "error_after_queueing"
    ERROR_BEFORE_QUEUEING = "error_before_queueing"
    CLOSED_PROMPT = "closed_prompt"
    """It is queued, and no answer comes; details: seconds, for which the connection stays open."""

    # Any request; at: a route such as `/history`, `GET /queue`, or `/ws`.
    SLOW_HTTP = "slow_http"
    """Details: seconds."""
    HTML = "html"
    """Details: status."""
    UNAUTHORIZED = "unauthorized"
    TOO_MANY = "too_many"
    """Details: retry_after, in seconds."""
    SERVER_ERROR = "server_error"

    # GET /view; at: the name of a file.
    VIEW_MISSING = "view_missing"
    """The file is gone from now on, and the cache does not know."""


# Where a fault strikes when nobody says: while the job is in full swing.
USUAL_STEP: Mapping[Fault, str] = dict.fromkeys(
    (Fault.CUT_SOCKET, Fault.DEAF_SOCKET, Fault.DUPLICATE_CLIENT, Fault.RESTART), "executing"
)


@dataclass(slots=True, kw_only=True)
class Setting:
    fault: Fault
    times: int | None
    """Off by itself after so many hits; None is for ever."""
    at: str | None
    prompt_id: str | None
    details: Mapping[str, object]

    def number(self, name: str, otherwise: float) -> float:
        return float(str(self.details.get(name, otherwise)))

    def text(self, name: str, otherwise: str) -> str:
        return str(self.details.get(name, otherwise))

    def meets(self, at: Collection[str], prompt_id: str | None) -> bool:
        return self.times != 0 and self.at in {None, *at} and self.prompt_id in {None, prompt_id}


class Faults:
    """The faults that are switched on, and how often each has struck."""

    def __init__(self) -> None:
        self._on: list[Setting] = []
        self._struck: Counter[Fault] = Counter()
        self._lock = threading.Lock()

    def add(self, setting: Setting) -> None:
        with self._lock:
            self._on.append(setting)

    def clear(self) -> None:
        with self._lock:
            self._on.clear()

    def struck(self, fault: Fault) -> int:
        with self._lock:
            return self._struck[fault]

    def strikes(self, fault: Fault, *, at: Collection[str] = (), prompt_id: str | None = None) -> Setting | None:
        """The setting of the fault if it hits here, this time."""
        with self._lock:
            for setting in self._on:
                if setting.fault is fault and setting.meets(at, prompt_id):
                    self._struck[fault] += 1
                    setting.times = None if setting.times is None else setting.times - 1
                    return setting
        return None
