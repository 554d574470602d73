"""What jobs may run: an allow-list by type. A payload is data, and never says which code is loaded.

A package names its handlers in its own metadata, as a function or as a module of decorated ones:

    [project.entry-points."herdsman.handlers"]
    render = "mypackage.jobs:render"
"""

import importlib
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from types import ModuleType
from typing import Any, TypeVar, cast

from herdsman.worker.context import Cancelled, JobContext, Setup, TryAgain, UserError

GROUP = "herdsman.handlers"
LARGEST_BATCH = 100
LONGEST_LINGER_MS = 10_000
LONGEST_TYPE = 64
_MARK = "__herdsman_handler__"

Prepare = Callable[[Setup], object]
Function = TypeVar("Function", bound=Callable[..., object])
COMMAND_FIELDS = ("job_id", "attempt", "workspace", "payload_file", "payload")
_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_BRACES = {"{{": "{", "}}": "}"}
TRY_AGAIN = 75
"""EX_TEMPFAIL: the command says that the machine or a service failed, and not the job."""
LONGEST_TAIL = 65_536
_LOOK_S = 0.1
_STOP_S = 5.0
_STEPS = 20
_LONGEST_S = 86_400
_LONGEST_NAP_S = 0.2
"""However long a step is, a request to stop is noticed within this time."""


class UnusableHandler(Exception):
    """A handler cannot be loaded; the sentence says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSpec:
    """What the supervisor knows of a handler, without its code."""

    type: str
    batch: int = 1
    linger_ms: int = 0
    stall_seconds: float | None = None
    memory_limit_mb: int | None = None
    prefetch: int | None = None
    """How many jobs of it a worker holds, the one at work included; 1: none is taken ahead. None: as many as are good."""

    def __post_init__(self) -> None:
        limits = (
            ("type", 0 < len(self.type) <= LONGEST_TYPE, f"have 1 to {LONGEST_TYPE} characters"),
            ("batch", 1 <= self.batch <= LARGEST_BATCH, f"be from 1 to {LARGEST_BATCH}"),
            ("linger_ms", 0 <= self.linger_ms <= LONGEST_LINGER_MS, f"be from 0 to {LONGEST_LINGER_MS}"),
            ("stall_seconds", self.stall_seconds is None or self.stall_seconds > 0, "be over 0"),
            ("memory_limit_mb", self.memory_limit_mb is None or self.memory_limit_mb >= 1, "be at least 1"),
            ("prefetch", self.prefetch is None or 1 <= self.prefetch <= LARGEST_BATCH, f"be from 1 to {LARGEST_BATCH}"),
        )
        for name, holds, rule in limits:
            if not holds:
                raise ValueError(f"{name} is {getattr(self, name)!r}: it must {rule}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    spec: HandlerSpec
    run: Callable[[Any], object]
    setup: Prepare | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where handlers come from. Nothing is imported until a handler's process loads them."""

    functions: Sequence[str] = ()
    """As `module:function`."""
    modules: Sequence[str] = ()
    """All decorated functions of each."""
    commands: Sequence[str] = ()
    """As `type=command {payload.field}`."""
    paths: Sequence[str] = ()
    """Directories in which Python looks for modules first."""
    installed: bool = True
    """Whether the handlers of installed packages, and the demo, count."""


def handler(
    type: str,  # noqa: A002  it is the type of jobs, in the word used everywhere
    *,
    batch: int = 1,
    linger_ms: int = 0,
    stall_seconds: float | None = None,
    memory_limit_mb: int | None = None,
    prefetch: int | None = None,
    setup: Prepare | None = None,
) -> Callable[[Function], Function]:
    """Marks a function as the handler of a type of jobs.

    With `batch` above 1 it gets a list of up to so many `JobContext`s and returns a list of results in their
    order. `setup` is called once in each process, before its first job and only once for all handlers that name
    it: the place to load models. Nothing is registered by the mark alone: a worker's settings name the modules to load.
    """
    spec = HandlerSpec(
        type=type,
        batch=batch,
        linger_ms=linger_ms,
        stall_seconds=stall_seconds,
        memory_limit_mb=memory_limit_mb,
        prefetch=prefetch,
    )

    def mark(function: Function) -> Function:
        setattr(function, _MARK, Handler(spec=spec, run=function, setup=setup))
        return function

    return mark


def load(sources: Sources, further: Iterable[tuple[str, Handler]] = ()) -> dict[str, Handler]:
    """Every handler by its type. Only for the handler's own process: this imports user code."""
    found: dict[str, Handler] = {}
    for origin, each in chain(_all(sources), further):
        if each.spec.type in found:
            raise UnusableHandler(f"{origin} is a second handler for jobs of type {each.spec.type!r}: keep one")
        found[each.spec.type] = each
    if not found:
        raise UnusableHandler("there is no handler: name a module, a function or a command")
    return found


def _all(sources: Sources) -> Iterator[tuple[str, Handler]]:
    if sources.installed:
        yield "the demo", Handler(spec=HandlerSpec(type="demo"), run=demo)
        for plugin in entry_points(group=GROUP):
            yield from _named(plugin.value, _imported(plugin), plugin.name)
    for name in sources.functions:
        where, _, what = name.partition(":")
        if not where or not what:
            raise UnusableHandler(f"the handler {name!r} is not written as module:function")
        yield from _named(name, _imported(EntryPoint(what, name, GROUP)), what)
    for name in sources.modules:
        yield from _named(name, _imported(EntryPoint(name, name, GROUP)), name)
    for text in sources.commands:
        kind, _, template = text.partition("=")
        try:
            run = partial(_run, split_command(template))
            yield f"the command for {kind}", Handler(spec=HandlerSpec(type=kind), run=run)
        except ValueError as error:
            raise UnusableHandler(f"the command {text!r} cannot be used: {error}") from error


def _imported(point: EntryPoint) -> object:
    importlib.invalidate_caches()
    try:
        return point.load()
    except Exception as error:
        raise UnusableHandler(f"the handler {point.value!r} cannot be imported: {error!r}") from error


def _named(origin: str, thing: object, name: str) -> Iterator[tuple[str, Handler]]:
    """A module stands for its decorated functions; a plain function takes the name it was given."""
    if isinstance(thing, ModuleType):
        marked = [getattr(each, _MARK, None) for each in vars(thing).values()]
        found = [each for each in marked if isinstance(each, Handler)]
        if not found:
            raise UnusableHandler(f"the module {origin!r} has no function with @handler: add it to one")
        yield from ((origin, each) for each in found)
    elif callable(thing):
        marked = getattr(thing, _MARK, None)
        plain = Handler(spec=HandlerSpec(type=name), run=thing)
        yield origin, marked if isinstance(marked, Handler) else plain
    else:
        raise UnusableHandler(f"{origin!r} is a {type(thing).__name__}: a handler is a function")


def prepare(handlers: Iterable[Handler], setup: Setup) -> None:
    """Each setup once. Only for the handler's own process: this runs user code."""
    for each in dict.fromkeys(handler.setup for handler in handlers if handler.setup is not None):
        try:
            each(setup)
        except Exception as error:
            name = getattr(each, "__qualname__", repr(each))
            raise UnusableHandler(f"the setup {name} failed: {error!r}") from error


def split_command(template: str) -> list[str]:
    """The arguments, each with its holes; `ValueError` when the text is no command."""
    words = shlex.split(template)
    if not words:
        raise ValueError("it names no program")
    for word in words:
        for hole in _HOLE.finditer(word):
            if hole[1] is not None and hole[1].partition(".")[0] not in COMMAND_FIELDS:
                raise ValueError(f"{hole[0]} is unknown; known are {', '.join(COMMAND_FIELDS)} and payload.FIELD")
    return words


def fill_command(words: list[str], values: Mapping[str, object]) -> list[str]:
    return [_HOLE.sub(lambda hole: _value(hole, values), word) for word in words]


def _value(hole: re.Match[str], values: Mapping[str, object]) -> str:
    if hole[1] is None:
        return _BRACES[hole[0]]
    value: object = values
    for step in hole[1].split("."):
        inside = cast("Mapping[str, object]", value if isinstance(value, dict) else {})
        if step not in inside:
            raise UserError(f"the job has no {hole[1]}, which its command needs")
        value = inside[step]
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise UserError(f"{hole[1]} contains a NUL character, which no argument can hold")
    return text


def _run(words: list[str], job: JobContext) -> object:
    payload_file = job.workspace / "payload.json"
    payload_file.write_text(json.dumps(job.payload), encoding="utf-8")
    values = {
        "job_id": job.job_id,
        "attempt": job.attempt,
        "workspace": str(job.workspace),
        "payload_file": str(payload_file),
        "payload": job.payload,
    }
    argv = fill_command(words, values)
    named = {"JOB_MODEL": job.model, "JOB_ADAPTER": job.adapter, "JOB_VARIANT": job.variant}
    variables = {
        "JOB_ID": job.job_id,
        "JOB_ATTEMPT": str(job.attempt),
        "JOB_WORKSPACE": str(job.workspace),
        **{name: value for name, value in named.items() if value is not None},
    }
    with payload_file.open("rb") as payload:
        try:
            process = subprocess.Popen(  # noqa: S603  no shell; the operator wrote the command
                argv, stdin=payload, stdout=subprocess.PIPE, env=os.environ | variables
            )
        except OSError as error:
            raise TryAgain(f"the command {argv[0]!r} could not be started: {error}") from error
        with process:
            tail = _listen(process, job)
    status = process.returncode
    if status == TRY_AGAIN:
        raise TryAgain(f"the command exited with status {TRY_AGAIN}: try again later")
    if status < 0:
        raise RuntimeError(f"the command was ended by signal {-status} ({signal.Signals(-status).name})")
    if status > 0:
        raise RuntimeError(f"the command exited with status {status}")
    text = tail.decode(errors="replace")
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    try:
        return json.loads(last, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {"stdout": text.replace("\0", "\ufffd")}


def _listen(process: "subprocess.Popen[bytes]", job: JobContext) -> bytes:
    """What it prints goes on to the log; the end of it is kept. It is stopped when the job is to stop."""
    assert process.stdout is not None
    pipe, tail = process.stdout.fileno(), b""
    while True:
        if job.cancelled:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise Cancelled("the command was stopped")
        if not select.select([pipe], [], [], _LOOK_S)[0]:
            if process.poll() is not None:  # something that it started still holds the pipe
                return tail
            continue
        got = os.read(pipe, LONGEST_TAIL)
        if not got:
            return tail
        sys.stdout.buffer.write(got)
        sys.stdout.flush()
        tail = (tail + got)[-LONGEST_TAIL:]


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def demo(job: JobContext) -> object:
    """Sleeps for `seconds` of its payload; stops at once when it is cancelled."""
    payload: object = job.payload
    given = cast("dict[str, object]", payload).get("seconds", 1) if isinstance(payload, dict) else 1
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _LONGEST_S:
        raise UserError(f"seconds is {given!r}: it must be a number from 0 to {_LONGEST_S}")
    for step in range(_STEPS):
        job.progress(step / _STEPS, f"step {step + 1} of {_STEPS}")
        until = time.monotonic() + given / _STEPS
        job.raise_if_cancelled()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LONGEST_NAP_S))
            job.raise_if_cancelled()
    return {"slept": given}
