"""The process that runs jobs, one order after the other: an order is one job, or a batch of one type.

It is started in a process group of its own and dies with its supervisor. What handlers print is read by the
supervisor through a pipe; the socket is for words alone, the first of which says what to load: neither the commands
of handlers nor the secrets of services stand in the list of processes or in an environment.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

from herdsman.core.loading import from_variables
from herdsman.core.model import Failure
from herdsman.worker.context import (
    LONGEST_ERROR,
    AnsweringLink,
    JobContext,
    Recovered,
    Setup,
    failure_message,
)
from herdsman.worker.ipc import Channel
from herdsman.worker.pids import limited_to
from herdsman.worker.registry import Handler, load, prepare, read_sources

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_SPYING = (17, 19)
"""CAP_SYS_RAWIO, for the memory of the machine, and CAP_SYS_PTRACE, for that of a process."""
_CAPABILITY_VERSION = 0x20080522


def main() -> None:
    die_with(int(sys.argv[1]))
    leave_others_alone()
    _print_by_the_line()
    channel = Channel(_connection(int(sys.argv[2])))
    given = channel.next_order()
    if given is None:
        sys.exit()
    if given["services"] is not None:
        ctypes.CDLL(None).prctl(
            _PR_SET_DUMPABLE, 0, 0, 0, 0
        )  # nobody reads the secrets of services from its memory
    handlers = _loaded(channel, given["sources"], given["services"])
    _keep_what_is_loaded()
    channel.send({"ready": [asdict(each.spec) for each in handlers.values()]})
    while (order := channel.next_order()) is not None:
        serve(channel, handlers, order)
    sys.exit()


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


def _print_by_the_line() -> None:
    """So that a job that is killed has its last lines in its log."""
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True, errors="backslashreplace")


def _connection(number: int) -> socket.socket:
    """What a handler starts has no business on this line."""
    connection = socket.socket(fileno=number)
    connection.set_inheritable(False)
    return connection


def _loaded(channel: Channel, given: dict[str, Any], services: str | None) -> dict[str, Handler]:
    sources = read_sources(given)
    sys.path[:0] = sources.paths
    try:
        handlers = load(sources, () if services is None else _of_services(services))
        prepare(handlers.values(), _setup(channel))
    except BaseException as error:
        with suppress(OSError):
            channel.send({"broken": str(error)[:LONGEST_ERROR]})
        raise
    return handlers


def _of_services(text: str) -> Iterable[tuple[str, Handler]]:
    """Only a worker that speaks to services pays for what that needs."""
    from herdsman.worker.service_run import handlers_of  # noqa: PLC0415

    return handlers_of(text)


def _setup(channel: Channel) -> Setup:
    wanted = from_variables(os.environ)
    return Setup(
        model=wanted.model,
        adapter=wanted.adapter,
        variant=wanted.variant,
        preload=wanted.preload,
        revision=wanted.revision,
        link=channel,
    )


def _keep_what_is_loaded() -> None:
    """Modules and models live as long as the process: the collector need not look at them after each job."""
    gc.collect()
    gc.freeze()


def serve(channel: AnsweringLink, handlers: dict[str, Handler], order: dict[str, Any]) -> None:
    """Runs one order and answers for each of its jobs."""
    handler = handlers[order["type"]]
    jobs = [_context(channel, order, given) for given in order["jobs"]]
    try:
        with limited_to(handler.spec.memory_limit_mb):
            results = _results(handler, jobs)
    except Exception as error:  # noqa: BLE001  a handler may raise anything; it is told, not swallowed
        results = [error] * len(jobs)
    except SystemExit as error:  # threads of the handler may keep a polite exit from ever ending
        _flush()
        os._exit(error.code if isinstance(error.code, int) else error.code is not None)
    _flush()
    for job, result in zip(jobs, results, strict=True):
        _answer(channel, job, result)


def _context(channel: AnsweringLink, order: dict[str, Any], given: dict[str, Any]) -> JobContext:
    seconds = given["seconds"]
    return JobContext(
        job_id=given["job_id"],
        type=order["type"],
        payload=given["payload"],
        attempt=given["attempt"],
        token=given["token"],
        service_job_id=given["service_job_id"],
        agent=given.get("agent", ""),
        model=given.get("model"),
        adapter=given.get("adapter"),
        variant=given.get("variant"),
        deadline=None if seconds is None else time.monotonic() + seconds,
        place=Path(given["workspace"]),
        link=channel,
    )


def _results(handler: Handler, jobs: list[JobContext]) -> Sequence[object]:
    if handler.spec.batch == 1:
        return [handler.run(jobs[0])]
    results = handler.run(jobs)
    if not isinstance(results, list | tuple):
        raise TypeError(f"a batch handler returned a {type(results).__name__}: it must return a list")
    found = cast("Sequence[object]", results)
    if len(found) != len(jobs):
        raise ValueError(f"a batch handler returned {len(found)} results for {len(jobs)} jobs")
    return found


def _answer(channel: AnsweringLink, job: JobContext, result: object) -> None:
    try:
        channel.answer(job.job_id, _word(result))
    except (OSError, SystemExit):
        raise
    except Exception as error:  # noqa: BLE001  a result that is no JSON is the handler's fault, and is told
        channel.answer(job.job_id, failure_message(error))


def _word(result: object) -> dict[str, object]:
    match result:
        case BaseException():
            return failure_message(result)
        case Recovered():
            return {"result": result.result, "recovered": result.seconds}
        case Failure():
            return {"failure": result.kind.value, "error": result.error[:LONGEST_ERROR]}
        case _:
            return {"result": result}


def _flush() -> None:
    """Before the answer, so that the last lines still belong to this job."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


if __name__ == "__main__":
    main()
