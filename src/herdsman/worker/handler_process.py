"""The supervisor's side of a handler's process: started, spoken to, and ended with all that it started."""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any, Protocol, cast

from herdsman.worker import fence
from herdsman.worker.job_log import Output, Sink
from herdsman.worker.pids import group_memory_mb, is_alone, kernel_kills, read_stat
from herdsman.worker.registry import Sources
from herdsman.worker.sandbox import Sandbox

Answer = Mapping[str, Any]

MOST_IDLE_LINES = 1_000
_HOME_PREFIX = "herdsman-handler-"
LONGEST_ANSWER = 16 * 1024 * 1024
_CHUNK = 64 * 1024
"""More would cost fresh memory from the kernel with every word, and most words are short."""
_MOST_CHUNKS = 64
_ENDING_S = 1.0
_GROUP_ENDS_S = 10.0
_GROUP_LOOK_S = 0.01
_FOR_PYTHON = ("PATH", "LD_LIBRARY_PATH")
MARK = "HANDLER_MARK"
"""The variable by which the processes of a handler are known, its orphans too."""
_ORPHAN_ROUNDS = 200
_ORPHAN_PAUSE_S = 0.01
_TICK_S = 0.02
"""The kernel tells the start of a process to the hundredth of a second."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a handler's process ended."""

    status: int
    out_of_memory: bool = False
    """The kernel killed it for want of memory."""
    fenced: bool = False
    """It ended because its claim was not renewed in time."""

    def __str__(self) -> str:
        if self.status >= 0:
            return f"exited with status {self.status}"
        try:
            return f"was ended by signal {-self.status} ({signal.Signals(-self.status).name})"
        except ValueError:  # a real-time signal has no name
            return f"was ended by signal {-self.status}"


class Child(Protocol):
    """A process that runs jobs, one order after the other."""

    @property
    def home(self) -> str:
        """The directory for the workspaces of its jobs."""
        ...

    def listen(self, wait_s: float) -> Sequence[Answer]:
        """Answers that have come, after at most `wait_s` seconds; at once when it has ended."""
        ...

    def send(self, word: Mapping[str, object]) -> None:
        """Never waits; a process that is gone hears nothing. From any thread.

        `until` says when its claim ends, on the monotonic clock: unless that is renewed, it ends itself by then,
        whatever becomes of us. None: it holds no claim.
        """
        ...

    def send_ahead(self, order: Mapping[str, object]) -> bool:
        """An order behind the one at work; False where it cannot have two."""
        ...

    def recall(self) -> bool:
        """Whether the order that was sent ahead had not begun: then it never does. Also after the end of the process."""
        ...

    def wake(self) -> None:
        """Ends the waiting in `listen`. From any thread."""
        ...

    def print_to(self, sink: Sink | None, output: int = 0) -> None:
        """Whose log gets what it prints to one of its two outputs from now on."""
        ...

    def tidy(self, spare: str = "", began: float | None = None) -> None:
        """After an order: its workspaces and its orphans are gone, but for those of the next one, which has begun."""
        ...

    def memory_mb(self) -> int: ...

    def ended(self) -> bool: ...

    def kill(self) -> None: ...

    def close(self, grace_s: float = 0) -> Exit:
        """Nothing of it is left afterwards. It has `grace_s` seconds to go by itself."""
        ...


class HandlerChild:
    """One process in a group of its own, with a socket for words and a pipe for what it prints."""

    def __init__(
        self,
        sources: Sources,
        environment: Mapping[str, str],
        *,
        services: str | None = None,
        sandbox: Sandbox | None = None,
        say: Callable[[str], None] = lambda _: None,
        sole: bool = False,
    ) -> None:
        """`services` is what `Outside.to_json` says of the external services whose jobs it runs."""
        self._mark, self._sole = token_hex(16), sole
        self._kills = kernel_kills()
        ours, theirs = socket.socketpair()
        home, self._home_lock = _create_home()
        self.home = str(home)
        reading, writing = os.pipe()
        second, further = os.pipe()
        self._permits, self._permitted = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._recalled = False
        try:
            # In a sandbox its parent is the first process of the namespace, which ends with us.
            parent = os.getpid() if sandbox is None else 1
            before = () if sandbox is None else sandbox.words(home)
            main = (sys.executable, "-P", "-m", "herdsman.worker.handler_main")
            self._popen = subprocess.Popen(  # noqa: S603  our own module, with no word from a job
                [*before, *main, str(parent), str(theirs.fileno()), str(self._permits), str(further)],
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env={**environment, MARK: self._mark},
                pass_fds=[theirs.fileno(), self._permits, further],
                process_group=0,
            )
            self.pid = self._popen.pid
            try:  # there is no handler without a fence
                self.fence = Fence(self.pid, self._mark, self.home, environment)
            except BaseException:
                self._popen.kill()
                self._popen.wait()
                raise
        except BaseException:
            ours.close()
            for pipe in (reading, second, self._permits, self._permitted):
                os.close(pipe)
            shutil.rmtree(self.home, ignore_errors=True)
            os.close(self._home_lock)
            raise
        finally:
            theirs.close()
            os.close(writing)
            os.close(further)
        # Neither reading nor writing ever waits, and the other end is not trusted: it may be silent, deaf or lie.
        ours.settimeout(0)
        self._line, self._open = ours, True
        self._lock = Lock()
        self._unsent = bytearray()
        """Messages that it has not taken yet."""
        self._waits_to_send = False
        self._unread = bytearray()
        self.send({"run": 0, "sources": asdict(sources), "services": services})
        self._say, self._idle_lines = say, 0
        self._outputs = (Output(reading, self._print_idle), Output(second, self._print_idle))
        self._pidfd = os.pidfd_open(self.pid)
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._killed = self._deaf = self._closed = False

    def listen(self, wait_s: float) -> Sequence[Answer]:
        self._wait(wait_s)
        lines: list[bytes | bytearray] = []
        answers: list[Answer] = []
        for _ in range(_MOST_CHUNKS if self._open else 0):
            try:
                got = self._line.recv(_CHUNK)
            except BlockingIOError:
                break
            except OSError:
                got = b""
            self._unread += got
            if b"\n" in got:
                *whole, rest = self._unread.split(b"\n")
                lines += whole
                self._unread = bytearray(rest)
            self._open = bool(got) and len(self._unread) <= LONGEST_ANSWER
            if len(got) < _CHUNK or not self._open:
                break
        if len(self._unread) > LONGEST_ANSWER:
            lines, self._unread = [], bytearray()
            answers.append({"nonsense": f"one answer had more than {LONGEST_ANSWER:,} bytes"})
        for line in lines:
            with suppress(ValueError, RecursionError):  # a line that is no answer is none
                answer = json.loads(line)
                if isinstance(answer, dict):
                    answers.append(cast("Answer", answer))
        if not self._open and not self._deaf:
            self._deaf = True
            self._poll.unregister(self._line)
            # A process that ends closes its line a moment before; one that lives on without it is no use.
            if not select.select([self._pidfd], [], [], _ENDING_S)[0]:
                self._say("a handler closed the line to its supervisor: its process is ended")
                self.kill()
        return answers

    def _wait(self, wait_s: float) -> None:
        if self._open and bool(self._unsent) != self._waits_to_send:
            self._waits_to_send = not self._waits_to_send
            self._poll.modify(self._line, select.POLLIN | (select.POLLOUT if self._waits_to_send else 0))
        if any(fd == self._woken for fd, _ in self._poll.poll(wait_s * 1000)):
            os.eventfd_read(self._woken)
        if self._unsent:
            self.send()

    def send(self, word: Mapping[str, object] | None = None) -> None:
        """Without a word: as much as it takes of those before."""
        if word is not None and "until" in word:
            self.fence.hold_until(cast("float | None", word["until"]))
            return
        with self._lock:
            self._unsent += b"" if word is None else json.dumps(word).encode() + b"\n"
            try:
                while self._unsent:
                    sent = self._line.send(self._unsent)
                    del self._unsent[:sent]
            except BlockingIOError:
                return
            except OSError:  # it has gone; how it went is seen elsewhere
                self._unsent.clear()

    def send_ahead(self, order: Mapping[str, object]) -> bool:
        number = cast("int", order["run"]) % 256
        os.write(self._permitted, bytes([number]))
        self.send({**order, "permit": number})
        return True

    def recall(self) -> bool:
        if not self._closed:
            with suppress(BlockingIOError):
                self._recalled = bool(os.read(self._permits, 1))
        recalled, self._recalled = self._recalled, False
        return recalled

    def wake(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._woken, 1)

    def print_to(self, sink: Sink | None, output: int = 0) -> None:
        self._outputs[output].turn_to(sink)

    def tidy(self, spare: str = "", began: float | None = None) -> None:
        for left in os.scandir(self.home):
            if spare and left.name.startswith(spare):
                continue
            if left.is_dir(follow_symlinks=False):
                shutil.rmtree(left.path, ignore_errors=True)
            else:
                Path(left.path).unlink(missing_ok=True)
        keep = (self.pid, self.fence.pid)
        if (count := end_orphans(self._mark, sole=self._sole, keep=keep, began=began)) > 0:
            self._say(f"{count} processes that a handler had left behind were ended")

    def memory_mb(self) -> int:
        return group_memory_mb(self.pid)

    def ended(self) -> bool:
        """Not reaped yet: until `close` its process id, and so the id of its group, belongs to nobody else."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> None:
        self._killed = True
        self._kill_group()
        select.select([self._pidfd], [], [], _ENDING_S)

    def close(self, grace_s: float = 0) -> Exit:
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)
        if grace_s:
            select.select([self._pidfd], [], [], grace_s)
        by_itself = self.ended()
        # First the fence: it knows the group by a number that is somebody else's after the wait.
        fenced = self.fence.close()
        self._kill_group()  # what the handler started ends with it
        # Its GPU is free only when all of it is gone, and a driver may take its time. Its leader is not reaped yet.
        select.select([self._pidfd], [], [], _GROUP_ENDS_S)
        for _ in range(int(_GROUP_ENDS_S / _GROUP_LOOK_S)):
            if is_alone(self.pid):
                break
            time.sleep(_GROUP_LOOK_S)
        else:
            self._say(f"processes of a handler live on {_GROUP_ENDS_S:.0f} seconds after they were killed")
        status = self._popen.wait()
        end_orphans(self._mark, sole=self._sole)
        os.close(self._pidfd)
        self._recalled = self.recall()
        with self._lock:
            self._open, self._closed = False, True
            self._unsent.clear()
            self._line.close()
            for pipe in (self._permits, self._permitted, self._woken):
                os.close(pipe)
        for output in self._outputs:
            output.close()
        shutil.rmtree(self.home, ignore_errors=True)
        os.close(self._home_lock)
        starved = status == -signal.SIGKILL and by_itself and not self._killed
        return Exit(status, out_of_memory=starved and kernel_kills() > self._kills and not fenced, fenced=fenced)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _print_idle(self, lines: Sequence[str]) -> None:
        for line in lines[: MOST_IDLE_LINES - self._idle_lines]:
            self._say(f"handler: {line}")
        self._idle_lines = min(MOST_IDLE_LINES, self._idle_lines + len(lines))


class Fence:
    """Our side of the small program that ends a handler when its claim may be another's, also while we stand still."""

    def __init__(self, group: int, mark: str, home: str, environment: Mapping[str, str]) -> None:
        self._words = [str(Path(fence.__file__)), str(group), f"{MARK}={mark}", home]
        self._environment = {name: environment[name] for name in _FOR_PYTHON if name in environment}
        self._start()

    def hold_until(self, until: float | None) -> None:
        word = f"{'' if until is None else until}\n".encode()
        try:
            self._line.send(word)
        except BlockingIOError:  # it stands still itself, and has older words to read
            return
        except OSError:  # somebody has killed it
            self.close()
            self._start()
            with suppress(OSError):
                self._line.send(word)

    def close(self) -> bool:
        """Nothing of it is left afterwards. Whether it has ended the handler."""
        try:
            fired = self._line.recv(1) == fence.FIRED
        except OSError:
            fired = False
        self._popen.kill()
        self._popen.wait()
        self._line.close()
        return fired

    def _start(self) -> None:
        self._line, theirs = socket.socketpair()
        self._line.settimeout(0)
        with theirs:
            # In a group of its own: what stops ours, as Ctrl-Z does, must not stop it.
            self._popen = subprocess.Popen(  # noqa: S603  our own file, with no word from a job
                [sys.executable, "-I", "-S", *self._words],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                process_group=0,
            )
        self.pid = self._popen.pid


@dataclass
class SplitChild:
    """Two processes as one: jobs of external services run in a process of their own, which knows the secrets of these
    services and loads no handler of a user; those of all others run in the other. One order is at work at a time."""

    own: HandlerChild
    services: HandlerChild
    _at_work: HandlerChild = field(init=False)
    _ready: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    """What each of them can run, by its process id."""

    def __post_init__(self) -> None:
        self._at_work, self._both = self.own, (self.own, self.services)
        self.home = self.own.home

    def listen(self, wait_s: float) -> Sequence[Answer]:
        answers: list[Answer] = []
        for child in self._both:
            # Until both are ready, the one that is not is waited for; then the one that has an order.
            unready = (each for each in self._both if each.pid not in self._ready)
            found = child.listen(wait_s if child is next(unready, self._at_work) else 0)
            for answer in found:
                if isinstance(answer.get("ready"), list):
                    self._ready[child.pid] = answer["ready"]
                    if len(self._ready) == len(self._both):
                        answers.append({"ready": [spec for known in self._ready.values() for spec in known]})
                else:
                    answers.append(answer)
        return answers

    def send(self, word: Mapping[str, object]) -> None:
        if "until" in word:
            for child in self._both:
                child.send(word)
            return
        if "jobs" in word:
            known = [spec["type"] for spec in self._ready.get(self.services.pid, [])]
            self._at_work = self.services if word["type"] in known else self.own
        self._at_work.send(word)

    def send_ahead(self, order: Mapping[str, object]) -> bool:
        """Only behind one of the same process: both would be at work at once."""
        known = [spec["type"] for spec in self._ready.get(self.services.pid, [])]
        there = self.services if order["type"] in known else self.own
        return there is self._at_work and there.send_ahead(order)

    def recall(self) -> bool:
        return self._at_work.recall()

    def wake(self) -> None:
        self._at_work.wake()

    def print_to(self, sink: Sink | None, output: int = 0) -> None:
        for child in self._both:
            child.print_to(sink, output)

    def tidy(self, spare: str = "", began: float | None = None) -> None:
        for child in self._both:
            child.tidy(spare, began)

    def memory_mb(self) -> int:
        return self._at_work.memory_mb()

    def ended(self) -> bool:
        return any(child.ended() for child in self._both)

    def kill(self) -> None:
        for child in self._both:
            child.kill()

    def close(self, grace_s: float = 0) -> Exit:
        """How the one ended that had something to do."""
        first = next((child for child in self._both if child.ended()), self._at_work)
        other = self.services if first is self.own else self.own
        how = first.close(grace_s)
        other.close()
        return how


def end_orphans(mark: str, *, sole: bool, keep: Collection[int] = (), began: float | None = None) -> int:
    """Kills the orphans with this mark, or all where none but ours can be there, and what becomes an orphan by that.

    How many there were. `keep` are our own children; what was started since the next job `began` is left to it.
    """
    since = None if began is None else time.clock_gettime(time.CLOCK_BOOTTIME) - (time.monotonic() - began) - _TICK_S
    ended: set[int] = set()
    me = os.getpid()
    for _ in range(_ORPHAN_ROUNDS):
        try:  # orphans are given to the first thread of a process
            children = [int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()]
        except OSError:  # without that list of the kernel we look at everybody
            everybody = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
            children = [pid for pid in everybody if (stat := read_stat(pid)) and int(stat[1]) == me]
        found: list[int] = []
        for pid in children:
            with suppress(OSError):
                marked = f"{MARK}={mark}".encode()
                if pid in keep or (since is not None and _started_at(pid) >= since):
                    continue
                if sole or marked in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
        if not found:
            break
        for pid in found:
            ended.add(pid)
            # Ours to reap, so the number cannot be another's yet.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_ORPHAN_PAUSE_S)
    return len(ended)


def _started_at(pid: int) -> float:
    """In seconds since the machine was started."""
    stat = read_stat(pid)
    return 0.0 if stat is None else int(stat[19]) / os.sysconf("SC_CLK_TCK")


def remove_dead_homes() -> None:
    """What supervisors left behind that were killed together with their fences: nobody holds the lock of it any more.

    Called when a worker starts, before it makes a home of its own.
    """
    for home in Path(tempfile.gettempdir()).glob(f"{_HOME_PREFIX}*"):
        with suppress(OSError):  # another's, in use, or just removed by another worker that starts
            lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(home, ignore_errors=True)
            finally:
                os.close(lock)


def _create_home() -> tuple[Path, int]:
    """A directory for workspaces, and its lock, which the kernel frees when this process dies in whatever way."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=_HOME_PREFIX))
        with suppress(FileNotFoundError):  # a worker that starts took it for a dead one before it was locked
            lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                home.stat()
            except (BlockingIOError, FileNotFoundError):
                os.close(lock)
            else:
                return home, lock
