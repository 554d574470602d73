"""The faults that a simulation injects: what each does, how often it strikes, and which of them a seed has."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, auto
from random import Random
from typing import Self

from herdsman.errors import InvalidRequest


class Fault(StrEnum):
    """Its name, the chance of it at every point where it may strike, and what it does."""

    CRASH = auto(), 0.003, "A process is killed, at any point where it speaks to others."
    STOP = auto(), 0.003, "A process stands still for a while, and wakes where it was."
    TWIN = auto(), 0.002, "A process stands still, its successor is started meanwhile, and then it wakes."
    PARTITION = auto(), 0.002, "Nothing that a process asks of others gets through for a while."
    CUT_BEFORE = auto(), 0.02, "The connection to the database breaks before the commit."
    CUT_AFTER = auto(), 0.03, "The connection to the database breaks after the commit: unknown outcome."
    ROLLED_BACK = auto(), 0.02, "All statements of a transaction have run, and then it is undone."
    CONTENDED = auto(), 0.03, "Another transaction was in the way: all of it is done again."
    DATABASE_AWAY = auto(), 0.0004, "The database answers nobody for a while."
    DATABASE_OUT = auto(), 0.0006, "The database answers nobody for minutes, and a machine may die meanwhile."
    CLOCK_JUMP = auto(), 0.001, "The clock of the database is set, forwards or backwards."
    COPIED_DATABASE = auto(), 0.3, "Replicas are started on a copy of the database, beside the original."
    FRESH_DATABASE = auto(), 0.3, "Replicas are started on an empty database, with the same DEPLOYMENT_ID."
    RESTORED_DATABASE = auto(), 0.2, "A backup takes the place of the database, which forgets all after it."
    LOST_REQUEST = auto(), 0.03, "What a worker says never arrives."
    LOST_REPLY = auto(), 0.06, "What a worker says is done, and the answer is lost."
    DOUBLED_REQUEST = auto(), 0.05, "What a worker says arrives twice."
    NO_CAPACITY = auto(), 0.15, "The provider has no machine left."
    PROVIDER_AWAY = auto(), 0.15, "The provider answers nothing, and asks to be left alone for a moment."
    PROVIDER_OUT = auto(), 0.005, "The provider answers nobody for longer than a machine may be unseen."
    REJECTED = auto(), 0.05, "The provider refuses the key until a person has repaired it."
    SPAWN_UNANSWERED = auto(), 0.3, "A machine is started, and the answer is lost."
    SPAWN_VANISHED = auto(), 0.15, "A machine is not started, and nobody says so."
    SPAWN_LATE = auto(), 0.2, "The answer to a start is lost, and the machine appears long after it."
    LISTING_LAG = auto(), 0.5, "A new machine is not listed for a while, and one that has ended still is."
    LISTING_EMPTY = auto(), 0.12, "The provider lists no machine at all."
    FIND_LIES = auto(), 0.5, "The provider does not know a machine that lives."
    END_IGNORED = auto(), 0.6, "The provider accepts the end of a machine, and does nothing."
    END_UNANSWERED = auto(), 0.6, "A machine is ended, and the answer is lost."
    PREEMPTED = auto(), 0.15, "A machine is taken away without a word."
    LEFTOVER = auto(), 0.3, "A machine of the fleet lives on from before, and no row knows it."
    DIES_AT_START = auto(), 0.2, "A machine exits before its worker has reported, and the provider says so."
    NEVER_BOOTS = auto(), 0.15, "A machine runs, and nobody reports for duty from it."
    POISON = auto(), 0.12, "A job kills whoever runs it."
    CRASHING_HANDLER = auto(), 0.12, "A job ends the process of its handler."
    FAILING_HANDLER = auto(), 0.2, "A job fails, at first or always."
    HANGING_HANDLER = auto(), 0.12, "A job runs far past its time."
    DEAF_HANDLER = auto(), 0.12, "A job hears no cancel."
    SERVICE_AWAY = auto(), 0.03, "The external service does not answer for a while."
    SERVICE_FORGETS = auto(), 0.02, "The external service is restarted, and knows no job any more."
    SERVICE_MUTE = auto(), 0.3, "The external service does not say that a job is over."
    SERVICE_UNANSWERED = auto(), 0.2, "The external service has taken a job, and the answer is lost."
    SERVICE_VANISHED = auto(), 0.15, "A job never reaches the external service, and nobody says so."
    BUS_AWAY = auto(), 0.005, "Redis answers nobody for a while."
    BUS_FLUSHED = auto(), 0.01, "Redis forgets everything."
    BUS_UNANSWERED = auto(), 0.03, "Redis has done what it was asked, and the answer is lost."
    STREAM_DELETED = auto(), 0.01, "Somebody deletes a stream, or only its group."
    ENTRY_LOST = auto(), 0.1, "An entry of a stream is lost."
    ENTRY_DOUBLED = auto(), 0.1, "An entry of a stream is read twice."
    ENTRY_FORGED = auto(), 0.02, "Somebody adds an entry of no job, or one that is wrong about its job."

    rate: float
    said: str

    def __new__(cls, name: str, rate: float, said: str) -> Self:
        member = str.__new__(cls, name)
        member._value_, member.rate, member.said = name, rate, said
        return member


HALF, TWICE = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class Hazards:
    """The faults of one seed. A few at once find more than all at once, so each seed has a choice of its own."""

    rates: dict[Fault, float]

    def rate(self, fault: Fault) -> float:
        return self.rates.get(fault, 0.0)


def drawn(allowed: Iterable[Fault], random: Random) -> Hazards:
    chosen = {fault: fault.rate * random.uniform(HALF, TWICE) for fault in allowed if random.random() < HALF}
    return Hazards(chosen)


def parse_faults(text: str) -> frozenset[Fault]:
    """`all`, `none`, or names with commas between them; `-name` takes one out of all."""
    words = [word.strip() for word in text.lower().split(",") if word.strip()]
    unknown = [word for word in words if word.removeprefix("-") not in {*Fault, "all", "none"}]
    if unknown or not words:
        known = ", ".join(sorted(Fault))
        raise InvalidRequest(f"--faults is {text!r}: write all, none, or some of {known}")
    without = {Fault(word[1:]) for word in words if word.startswith("-")}
    named = {Fault(word) for word in words if word in set(Fault)}
    everything = frozenset(Fault) if "all" in words or (without and not named) else frozenset[Fault]()
    return (everything | named) - without
