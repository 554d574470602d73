"""The state of one simulation: virtual time, randomness, faults, the trace, and what really happened so far."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import count
from random import Random

from herdsman.errors import StoreUnavailable
from herdsman.testing.simulation.checks import history
from herdsman.testing.simulation.faults import Fault, Hazards
from herdsman.testing.simulation.scheduler import Process, Scheduler, Strand
from herdsman.testing.simulation.threads import WorldClock

ZERO = datetime(2026, 3, 1, tzinfo=UTC)
LONGEST_SKEW_S = 300.0
LONGEST_STOP_S, JUMPS_S = 35.0, (-35.0, -15.0, -5.0, 5.0, 20.0, 35.0)
"""As in production, any two of a stop, a jump of the clock and a late machine are shorter than what is waited for
before a machine that nobody sees counts as absent. No program can help it where they are longer."""
NEAR_S, FAR_S, FAR_SHARE = 0.004, 0.4, 0.02


@dataclass
class Books:
    """What those outside of the database know to have happened."""

    submissions: dict[str, history.Submission] = field(default_factory=dict[str, history.Submission])
    cancels: list[history.Cancel] = field(default_factory=list[history.Cancel])
    receipts: list[history.Receipt] = field(default_factory=list[history.Receipt])
    runs: list[history.Run] = field(default_factory=list[history.Run])
    saves: list[history.Saved] = field(default_factory=list[history.Saved])
    renderings: list[history.Rendering] = field(default_factory=list[history.Rendering])
    writes: list[history.LeaderWrite] = field(default_factory=list[history.LeaderWrite])
    uses: list[history.Use] = field(default_factory=list[history.Use])
    stood: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])
    """Which process stood still, from when to when."""
    cuts: list[history.Cut] = field(default_factory=list[history.Cut])
    outages: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Of the database, from when to when."""
    jumped: list[float] = field(default_factory=list[float])
    """When the database's clock was set."""


class World:
    def __init__(self, seed: int, hazards: Hazards, faults_until: float) -> None:
        self.random = Random(seed)
        self.scheduler = Scheduler(self.random)
        self.clock = WorldClock(self.scheduler)
        self.steps: list[tuple[float, str, str]] = []
        """When, who, and what."""
        self.notes: Counter[str] = Counter()
        """How often each rare situation occurred."""
        self.books = Books()
        self.hazards = hazards
        self.faults_until = faults_until
        self.last_fault_at = 0.0
        self.all_well_at = 0.0
        """When the last one that was stopped or cut off goes on."""
        self.database_ahead = 0.0
        self.database_away_until = 0.0
        self.numbers: Iterator[int] = count(1)
        self.replace: Callable[[Process], None] = lambda _: None
        """Starts the successor of one that only stands still."""
        self.on_long_outage: Callable[[float], None] = lambda _: None
        """Called with its seconds when a long outage of the database begins."""

    @property
    def now(self) -> float:
        return self.scheduler.now

    @property
    def troubled(self) -> bool:
        return self.now < self.faults_until

    def database_time(self) -> datetime:
        return ZERO + timedelta(seconds=round(self.now + self.database_ahead, 6))

    def process(self, name: str) -> Process:
        ahead = self.random.uniform(-LONGEST_SKEW_S, LONGEST_SKEW_S)
        self.tell(name, "started")
        return Process(name, started_at=self.now, started_in=len(self.steps), ahead=ahead)

    def start(self, process: Process, name: str, work: Callable[[], None]) -> Strand:
        return self.scheduler.start(process, name, work)

    def tell(self, who: str, what: str) -> None:
        self.steps.append((self.now, who, what))

    def hash(self) -> str:
        whole = "\n".join(f"{at!r} {who} {what}" for at, who, what in self.steps)
        return sha256(whole.encode()).hexdigest()[:16]

    def note(self, situation: str) -> None:
        self.notes[situation] += 1

    def strikes(self, fault: Fault, danger: float = 1.0) -> bool:
        """Whether it happens here and now."""
        rate = self.hazards.rate(fault) * danger
        if not rate or not self.troubled or self.random.random() >= rate:
            return False
        self.mark(fault)
        return True

    def mark(self, fault: Fault) -> None:
        self.last_fault_at = self.now
        self.note(f"fault:{fault}")
        strand = self.scheduler.current
        self.tell(strand.process.name, f"! {fault}")

    def travel(self) -> None:
        """A word on its way to somebody else. Its speaker may be killed or stopped, and others are at work."""
        chance = self.random
        far = chance.random() < FAR_SHARE
        self.scheduler.sleep(chance.expovariate(1 / (FAR_S if far else NEAR_S)))
        if self.troubled:
            self._endanger(self.scheduler.current.process)

    def reach(self) -> None:
        """`StoreUnavailable` for one who cannot reach the database now."""
        self.travel()
        if self.scheduler.current.process.cut_off_until > self.now or self.database_away_until > self.now:
            raise StoreUnavailable("the database does not answer")

    def _endanger(self, process: Process) -> None:
        danger = process.danger
        if self.strikes(Fault.CRASH, danger):
            self.scheduler.kill(process)
        if self.strikes(Fault.STOP, danger):
            self._stop(process)
        if self.strikes(Fault.TWIN, danger):
            self.replace(process)
            self._stop(process)
        if self.strikes(Fault.PARTITION, danger):
            process.cut_off_until = self.until(self.now + self.random.uniform(2, 60))
            self.books.cuts.append(history.Cut(process=process.full_name, since=self.now, until=process.cut_off_until))
        if self.strikes(Fault.DATABASE_AWAY):
            self.outage(self.random.uniform(1, 30))
        if self.strikes(Fault.DATABASE_OUT):
            seconds = self.random.uniform(60, 300)
            self.outage(seconds)
            self.on_long_outage(seconds)
        if not self.database_ahead and self.strikes(Fault.CLOCK_JUMP):
            self.database_ahead = self.random.choice(JUMPS_S)
            self.books.jumped.append(self.now)

    def outage(self, seconds: float) -> None:
        self.database_away_until = self.until(max(self.database_away_until, self.now + seconds))
        self.books.outages.append((self.now, self.database_away_until))

    def until(self, moment: float) -> float:
        """All is not well before then."""
        self.all_well_at = max(self.all_well_at, moment)
        return moment

    def _stop(self, process: Process) -> None:
        process.stopped_until = self.until(self.now + self.random.uniform(1, LONGEST_STOP_S))
        self.books.stood.append((process.name, self.now, process.stopped_until))
        self.scheduler.sleep(0)
