"""Threads as greenlets in virtual time: one runs at a time, and the seed decides which is next."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from greenlet import greenlet


class Ended(BaseException):
    """The world is over: unwind, and touch nothing."""


@dataclass(eq=False)
class Process:
    """What can be killed or stopped as a whole, with a clock of its own."""

    name: str
    started_at: float = 0.0
    started_in: int = 0
    """The step of the story: two may start at the same moment."""
    ahead: float = 0.0
    """How far its clock is from that of the world."""
    danger: float = 1.0
    """How much more often than usual chance strikes it; 0 for one that is safe."""
    alive: bool = True
    over_at: float | None = None
    """When it was killed, or left by itself."""
    stopped_until: float = 0.0
    cut_off_until: float = 0.0
    """Nothing that it asks of others gets through before then."""
    on_death: Callable[[], object] = lambda: None

    @property
    def full_name(self) -> str:
        """Those that follow each other on a machine, or wake beside each other, share the short one."""
        return f"{self.name} of {self.started_at:.3f} step {self.started_in}"


class Strand:
    """A thread of a process."""

    def __init__(self, scheduler: "Scheduler", process: Process, name: str, work: Callable[[], None]) -> None:
        self.process = process
        self.name = name
        self.over = False
        self.turn = 0
        """Raised with every turn it gets, so that an old appointment is known to be old."""
        # Whoever ends goes back to the hub, and not to the one that happened to start it.
        self.greenlet = greenlet(self._run, scheduler.hub)
        self._scheduler = scheduler
        self._work = work
        self._waiting: list[Strand] = []

    def join(self, timeout: float | None = None) -> None:
        if not self.over:
            self._scheduler.wait_among(self._waiting, timeout)

    def _run(self) -> None:
        try:
            self._work()
        except Ended:
            pass
        except BaseException as error:  # noqa: BLE001  (the outermost of this strand)
            self._scheduler.broken.append((self, error))
        self.over = True
        for strand in self._waiting:
            self._scheduler.wake(strand)


class Scheduler:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.turns = 0
        self.over = False
        self.broken: list[tuple[Strand, BaseException]] = []
        """Strands that ended with an error that nobody had thought of."""
        self._appointments: list[tuple[float, float, int, int, Strand]] = []
        self._count = 0
        self.hub = greenlet.getcurrent()
        self._all: list[Strand] = []
        self._current: Strand | None = None

    @property
    def current(self) -> Strand:
        assert self._current is not None, "only a strand may wait"
        return self._current

    def start(self, process: Process, name: str, work: Callable[[], None]) -> Strand:
        strand = Strand(self, process, name, work)
        self._all.append(strand)
        self.wake(strand)
        return strand

    def sleep(self, seconds: float) -> None:
        self._appoint(self.current, self.now + max(0.0, seconds))
        self._leave()

    def wait(self, timeout: float | None = None) -> None:
        """Until somebody wakes this strand, or the time is over."""
        if timeout is not None:
            self._appoint(self.current, self.now + max(0.0, timeout))
        self._leave()

    def wait_among(self, waiting: list[Strand], timeout: float | None) -> None:
        """As one of those that somebody else wakes."""
        strand = self.current
        waiting.append(strand)
        self.wait(timeout)
        # Who gave up is not to be woken from whatever it does next.
        if strand in waiting:
            waiting.remove(strand)

    def wake(self, strand: Strand) -> None:
        self._appoint(strand, self.now)

    def kill(self, process: Process) -> None:
        """As kill -9 does: not one line more is run, no `finally` and no last word."""
        if not process.alive:
            return
        process.alive = False
        process.over_at = self.now if process.over_at is None else process.over_at
        process.on_death()
        if self._current is not None and self._current.process is process:
            self.hub.switch()

    def leave(self) -> None:
        """Not one line more of this strand is run: its process was killed from within it."""
        self.hub.switch()
        raise Ended

    def run(self, until: float) -> None:
        """Everything that happens up to then."""
        self.hub = greenlet.getcurrent()
        while self._appointments and self._appointments[0][0] <= until and not self.broken:
            at, _, _, turn, strand = heappop(self._appointments)
            process = strand.process
            if strand.over or strand.turn != turn or not process.alive:
                continue
            self.now = max(self.now, at)
            if process.stopped_until > self.now:
                self._appoint(strand, process.stopped_until)
                continue
            strand.turn += 1
            self.turns += 1
            self._current = strand
            strand.greenlet.switch()
            self._current = None
        if not self.broken:
            self.now = max(self.now, until)

    def close(self) -> None:
        """Unwinds everybody, the dead as well."""
        self.over = True
        for strand in self._all:
            if strand.greenlet and not strand.greenlet.dead:
                self._current = strand
                strand.greenlet.throw(Ended)
        self._current = None

    def _appoint(self, strand: Strand, at: float) -> None:
        self._count += 1
        # Of those that are due at one moment, chance decides who comes first.
        heappush(self._appointments, (at, self.random.random(), self._count, strand.turn, strand))

    def _leave(self) -> None:
        if self.over:
            raise Ended
        self.hub.switch()
        if self.over:
            raise Ended
