"""The process that runs jobs, one order after the other: an order is one job, or a batch of one type.

It is started in a process group of its own and dies with its supervisor. What handlers print is read by the
supervisor through a pipe; the socket is for words alone, the first of which says what to load: neither the commands
of handlers nor the secrets of services stand in the list of processes or in an environment.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from threading import Lock
from typing import Any, cast

from herdsman.jobs.model import Failure
from herdsman.jobs.protocol import from_variables
from herdsman.worker import context
from herdsman.worker.pids import limited_to
from herdsman.worker.registry import Handler, Sources, load, prepare

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_SPYING = (17, 19)
"""CAP_SYS_RAWIO, for the memory of the machine, and CAP_SYS_PTRACE, for that of a process."""
_CAPABILITY_VERSION = 0x20080522
LONGEST_WORD = 16 * 1024 * 1024
_CHUNK = 64 * 1024  # as at the other end of the socket
_OF_A_JOB = ["job_id", "agent", "payload", "attempt", "token", "service_job_id", "model", "adapter", "variant"]


def main() -> None:
    die_with(int(sys.argv[1]))
    leave_others_alone()
    for stream in (sys.stdout, sys.stderr):
        # By the line, so that a job that is killed has its last lines in its log.
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    connection = socket.socket(fileno=int(sys.argv[2]))
    connection.set_inheritable(False)  # what a handler starts has no business on this line
    further = [int(word) for word in sys.argv[3:]]
    for each in further:
        os.set_inheritable(each, False)  # noqa: FBT003
    channel = Channel(connection, *further)
    given = channel.next_order()
    if given is None:
        sys.exit()
    if given["services"] is not None:
        # No other process reads the secrets of services from its memory.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    handlers = _loaded(channel, given["sources"], given["services"])
    # Modules and models live as long as the process: the collector need not look at them after each job.
    gc.collect()
    gc.freeze()
    channel.tell("", {"ready": [asdict(each.spec) for each in handlers.values()]})
    while (order := channel.next_order()) is not None:
        serve(channel, handlers, order)
    sys.exit()


class Channel:
    """Nothing reads in the background: whoever wants to know looks, so no thread of ours lives beside a handler."""

    def __init__(self, connection: socket.socket, permits: int = -1, second_output: int = -1) -> None:
        """An order that was sent ahead begins only with its permit, one byte in a pipe: the supervisor may take it back.

        What jobs print goes by turns to two pipes, so that it is known whose it is.
        """
        self._connection = connection
        self._permits, self._permit = permits, b""
        self._outputs: tuple[int, ...] = () if second_output < 0 else (os.dup(1), second_output)
        self._output = 0
        self._owner = os.getpid()
        self._sending = Lock()
        self._reading = Lock()
        self._unread = bytearray()
        self._orders: list[Any] = []
        self._replies: dict[int, Any] = {}
        self._cancelled: dict[str, str] = {}
        """Which, and why."""
        self._asked = 0
        self._run = 0

    def next_order(self) -> Any:
        """Waits for the next jobs; None when the supervisor has hung up."""
        if os.getpid() != self._owner:  # a fork of a handler's setup, which would run our jobs a second time
            os._exit(0)
        with self._reading:
            order: Any = None
            while order is None:
                while not self._orders:
                    if not self._read():
                        return None
                order = self._orders.pop(0)
                if "permit" in order and not self._is_permitted(order["permit"]):
                    order = None
        if order.get("output", self._output) != self._output:
            self._output = int(order["output"])
            for stream in (1, 2):
                os.dup2(self._outputs[self._output], stream)
        self._run, self._cancelled = order["run"], {}
        return order

    def _is_permitted(self, number: int) -> bool:
        """False where it was taken back. A permit of the next order may lie in the pipe already; it is kept for that."""
        try:
            self._permit = self._permit or os.read(self._permits, 1)
        except BlockingIOError:
            return False
        if self._permit != bytes([number]):
            return False
        self._permit = b""
        return True

    def tell(self, job_id: str, word: Mapping[str, object]) -> None:
        line = json.dumps({"run": self._run, "job": job_id, **word}, allow_nan=False).encode() + b"\n"
        if len(line) > LONGEST_WORD:
            raise context.UserError(f"one answer has {len(line):,} bytes, the limit is {LONGEST_WORD:,}")
        with self._sending:
            self._connection.sendall(line)

    def ask(self, job_id: str, word: Mapping[str, object]) -> Any:
        with self._reading:
            self._asked += 1
            number = self._asked
            self.tell(job_id, {"ask": number, **word})
            while number not in self._replies:
                if not self._read():
                    raise context.Cancelled("the supervisor has gone")
            return value_of(self._replies.pop(number))

    def cancelled(self, job_id: str) -> bool:
        """One that waits for an answer reads for all of us."""
        if self._reading.acquire(blocking=False):
            try:
                while select.select([self._connection], [], [], 0)[0]:
                    if not self._read():
                        return True
            finally:
                self._reading.release()
        return job_id in self._cancelled

    def why_stopped(self, job_id: str) -> str | None:
        return self._cancelled.get(job_id)

    def _read(self) -> bool:
        got = self._connection.recv(_CHUNK)
        self._unread += got
        if b"\n" in got:  # an order may be large, and is looked through once
            *lines, self._unread = self._unread.split(b"\n")
            for word in map(json.loads, lines):
                if "cancel" in word:
                    if word["run"] == self._run:
                        self._cancelled.setdefault(word["cancel"], word.get("reason", ""))
                elif "reply" in word:
                    self._replies[word["reply"]] = word
                else:
                    self._orders.append(word)
        return bool(got)


def value_of(reply: Any) -> Any:
    match reply.get("error"):
        case None:
            return reply.get("value")
        case {"kind": "refused", "said": said}:
            raise ValueError(said)
        case {"said": said}:
            raise context.TryAgain(f"the queue could not be reached: {said}")
        case _:
            raise context.TryAgain("the queue could not be reached")


def die_with(parent: int) -> None:
    """A supervisor that is killed must not leave a job running that another worker gets."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it died before we could ask
        os._exit(1)


def leave_others_alone() -> None:
    """Handlers of root may not look into the memory of other processes, and so not into their supervisor's."""
    libc = ctypes.CDLL(None)
    for capability in _SPYING:
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused to all but root, who alone has them
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    kept = (ctypes.c_uint32 * 6)()
    if libc.capget(header, kept) == 0:
        for place in range(3):  # effective, permitted and inheritable
            kept[place] &= ~sum(1 << capability for capability in _SPYING)
        libc.capset(header, kept)


def _loaded(channel: Channel, given: dict[str, Any], services: str | None) -> dict[str, Handler]:
    sources = Sources(**given)
    sys.path[:0] = sources.paths
    try:
        further: Iterable[tuple[str, Handler]] = ()
        if services is not None:  # only a worker that speaks to services pays for what that needs
            from herdsman.worker.service_run import handlers_of  # noqa: PLC0415

            further = handlers_of(services)
        handlers = load(sources, further)
        prepare(handlers.values(), context.Setup(**asdict(from_variables(os.environ)), link=channel))
    except BaseException as error:
        with suppress(OSError):
            channel.tell("", {"broken": str(error)[: context.LONGEST_ERROR]})
        raise
    return handlers


def serve(channel: context.Link, handlers: dict[str, Handler], order: dict[str, Any]) -> None:
    """Runs one order and answers for each of its jobs."""
    handler, now, process = handlers[order["type"]], time.monotonic(), os.getpid()
    jobs = [
        context.JobContext(
            type=order["type"],
            deadline=None if given["seconds"] is None else now + given["seconds"],
            place=Path(given["workspace"]),
            link=channel,
            **{name: given[name] for name in _OF_A_JOB if name in given},
        )
        for given in order["jobs"]
    ]
    exits: SystemExit | None = None
    results: Sequence[object] = ()
    limit = handler.spec.memory_limit_mb
    try:
        with nullcontext() if limit is None else limited_to(limit):
            results = [handler.run(jobs[0])] if handler.spec.batch == 1 else _batch_results(handler, jobs)
    except Exception as error:  # noqa: BLE001  a handler may raise anything; it is reported, not swallowed
        results = [error] * len(jobs)
    except SystemExit as error:
        exits = error
    # Before the answer, so that the last lines still belong to this job.
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    if exits is not None:  # threads of the handler may keep a polite exit from ever ending
        os._exit(exits.code if isinstance(exits.code, int) else exits.code is not None)
    if os.getpid() != process:  # a fork of the handler came back here: it would answer a second time
        os._exit(0)
    # Said with each answer, not trusted, and of use to the supervisor: how long it took, and whether it left anything.
    made = any(job.place is not None and job.place.exists() for job in jobs)
    more: dict[str, object] = {"ran": round(time.monotonic() - now, 6), "made": made}
    for job, result in zip(jobs, results, strict=True):
        try:
            match result:
                case BaseException():
                    word = context.failure_message(result)
                case context.Recovered():
                    word = {"result": result.result, "recovered": result.seconds}
                case Failure():
                    word = {"failure": result.kind.value, "error": result.error[: context.LONGEST_ERROR]}
                case _:
                    word = {"result": result}
            channel.tell(job.job_id, {**word, **more})
        except (OSError, SystemExit):
            raise
        except Exception as error:  # noqa: BLE001  a result that is no JSON is the handler's fault, and is reported
            channel.tell(job.job_id, context.failure_message(error))


def _batch_results(handler: Handler, jobs: list[context.JobContext]) -> Sequence[object]:
    results = handler.run(jobs)
    if not isinstance(results, list | tuple):
        raise TypeError(f"a batch handler returned a {type(results).__name__}: it must return a list")
    found = cast("Sequence[object]", results)
    if len(found) != len(jobs):
        raise ValueError(f"a batch handler returned {len(found)} results for {len(jobs)} jobs")
    return found


if __name__ == "__main__":
    main()
