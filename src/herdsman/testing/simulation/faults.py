"""The faults that a simulation injects: what each does, how often it strikes, and which of them a seed has."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import MappingProxyType

from herdsman.errors import InvalidRequest


class Fault(StrEnum):
    """`FAULT_DOCS` says what each of them does."""

    CRASH = "crash"
    STOP = "stop"
    TWIN = "twin"
    PARTITION = "partition"
    CUT_BEFORE = "cut_before"
    CUT_AFTER = "cut_after"
    ROLLED_BACK = "rolled_back"
    CONTENDED = "contended"
    DATABASE_AWAY = "database_away"
    DATABASE_OUT = "database_out"
    CLOCK_JUMP = "clock_jump"
    COPIED_DATABASE = "copied_database"
    FRESH_DATABASE = "fresh_database"
    RESTORED_DATABASE = "restored_database"
    LOST_REQUEST = "lost_request"
    LOST_REPLY = "lost_reply"
    DOUBLED_REQUEST = "doubled_request"
    NO_CAPACITY = "no_capacity"
    PROVIDER_AWAY = "provider_away"
    PROVIDER_OUT = "provider_out"
    REJECTED = "rejected"
    SPAWN_UNANSWERED = "spawn_unanswered"
    SPAWN_VANISHED = "spawn_vanished"
    SPAWN_LATE = "spawn_late"
    LISTING_LAG = "listing_lag"
    LISTING_EMPTY = "listing_empty"
    FIND_LIES = "find_lies"
    END_IGNORED = "end_ignored"
    END_UNANSWERED = "end_unanswered"
    PREEMPTED = "preempted"
    LEFTOVER = "leftover"
    DIES_AT_START = "dies_at_start"
    NEVER_BOOTS = "never_boots"
    POISON = "poison"
    CRASHING_HANDLER = "crashing_handler"
    FAILING_HANDLER = "failing_handler"
    HANGING_HANDLER = "hanging_handler"
    DEAF_HANDLER = "deaf_handler"
    SERVICE_AWAY = "service_away"
    SERVICE_FORGETS = "service_forgets"
    SERVICE_MUTE = "service_mute"
    SERVICE_UNANSWERED = "service_unanswered"
    SERVICE_VANISHED = "service_vanished"
    BUS_AWAY = "bus_away"
    BUS_FLUSHED = "bus_flushed"
    BUS_UNANSWERED = "bus_unanswered"
    STREAM_DELETED = "stream_deleted"
    ENTRY_LOST = "entry_lost"
    ENTRY_DOUBLED = "entry_doubled"
    ENTRY_FORGED = "entry_forged"


RATES = {
    Fault.CRASH: 0.003,
    Fault.STOP: 0.003,
    Fault.TWIN: 0.002,
    Fault.PARTITION: 0.002,
    Fault.CUT_BEFORE: 0.02,
    Fault.CUT_AFTER: 0.03,
    Fault.ROLLED_BACK: 0.02,
    Fault.CONTENDED: 0.03,
    Fault.DATABASE_AWAY: 0.0004,
    Fault.DATABASE_OUT: 0.0006,
    Fault.CLOCK_JUMP: 0.001,
    Fault.COPIED_DATABASE: 0.3,
    Fault.FRESH_DATABASE: 0.3,
    Fault.RESTORED_DATABASE: 0.2,
    Fault.LOST_REQUEST: 0.03,
    Fault.LOST_REPLY: 0.06,
    Fault.DOUBLED_REQUEST: 0.05,
    Fault.NO_CAPACITY: 0.15,
    Fault.PROVIDER_AWAY: 0.15,
    Fault.PROVIDER_OUT: 0.005,
    Fault.REJECTED: 0.05,
    Fault.SPAWN_UNANSWERED: 0.3,
    Fault.SPAWN_VANISHED: 0.15,
    Fault.SPAWN_LATE: 0.2,
    Fault.LISTING_LAG: 0.5,
    Fault.LISTING_EMPTY: 0.12,
    Fault.FIND_LIES: 0.5,
    Fault.END_IGNORED: 0.6,
    Fault.END_UNANSWERED: 0.6,
    Fault.PREEMPTED: 0.15,
    Fault.LEFTOVER: 0.3,
    Fault.DIES_AT_START: 0.2,
    Fault.NEVER_BOOTS: 0.15,
    Fault.POISON: 0.12,
    Fault.CRASHING_HANDLER: 0.12,
    Fault.FAILING_HANDLER: 0.2,
    Fault.HANGING_HANDLER: 0.12,
    Fault.DEAF_HANDLER: 0.12,
    Fault.SERVICE_AWAY: 0.03,
    Fault.SERVICE_FORGETS: 0.02,
    Fault.SERVICE_MUTE: 0.3,
    Fault.SERVICE_UNANSWERED: 0.2,
    Fault.SERVICE_VANISHED: 0.15,
    Fault.BUS_AWAY: 0.005,
    Fault.BUS_FLUSHED: 0.01,
    Fault.BUS_UNANSWERED: 0.03,
    Fault.STREAM_DELETED: 0.01,
    Fault.ENTRY_LOST: 0.1,
    Fault.ENTRY_DOUBLED: 0.1,
    Fault.ENTRY_FORGED: 0.02,
}
"""The chance of each at every point where it may strike."""

HALF, TWICE = 0.5, 2.0


@dataclass(frozen=True, slots=True)
class Hazards:
    """The faults of one seed. A few at once find more than all at once, so each seed has a choice of its own."""

    rates: dict[Fault, float]

    def rate(self, fault: Fault) -> float:
        return self.rates.get(fault, 0.0)


def drawn(allowed: Iterable[Fault], random: Random) -> Hazards:
    chosen = {
        fault: RATES[fault] * random.uniform(HALF, TWICE) for fault in allowed if random.random() < HALF
    }
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


FAULT_DOCS: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.CRASH: "A process is killed, at any point where it speaks to others.",
        Fault.STOP: "A process stands still for a while, and wakes where it was.",
        Fault.TWIN: "A process stands still, its successor is started meanwhile, and then it wakes.",
        Fault.PARTITION: "Nothing that a process asks of others gets through for a while.",
        Fault.CUT_BEFORE: "The connection to the database breaks before the commit.",
        Fault.CUT_AFTER: "The connection to the database breaks after the commit: its outcome is unknown.",
        Fault.ROLLED_BACK: "All statements of a transaction have run, and then it is undone.",
        Fault.CONTENDED: "Another transaction was in the way: all of it is done again.",
        Fault.DATABASE_AWAY: "The database answers nobody for a while.",
        Fault.DATABASE_OUT: "The database answers nobody for minutes, and a machine may die meanwhile.",
        Fault.CLOCK_JUMP: "The clock of the database is set, forwards or backwards.",
        Fault.COPIED_DATABASE: "Replicas are started on a copy of the database, beside those of the original.",
        Fault.FRESH_DATABASE: "Replicas are started on an empty database, with the same DEPLOYMENT_ID and provider.",
        Fault.RESTORED_DATABASE: "A backup takes the place of the database: what was written since then is forgotten.",
        Fault.LOST_REQUEST: "What a worker says never arrives.",
        Fault.LOST_REPLY: "What a worker says is done, and the answer is lost.",
        Fault.DOUBLED_REQUEST: "What a worker says arrives twice.",
        Fault.NO_CAPACITY: "The provider has no machine left.",
        Fault.PROVIDER_AWAY: "The provider answers nothing, and asks to be left alone for a moment.",
        Fault.REJECTED: "The provider refuses the key until a person has mended it.",
        Fault.SPAWN_UNANSWERED: "A machine is started, and the answer is lost.",
        Fault.SPAWN_VANISHED: "A machine is not started, and nobody says so.",
        Fault.SPAWN_LATE: "The answer to a start is lost, and the machine appears long after it.",
        Fault.LISTING_LAG: "A new machine is missing from listings for a while, and one that has ended is still there.",
        Fault.PROVIDER_OUT: "The provider answers nobody for longer than a machine may be unseen.",
        Fault.LEFTOVER: "A machine of the fleet lives on from before, and no row knows it.",
        Fault.LISTING_EMPTY: "The provider lists no machine at all.",
        Fault.FIND_LIES: "The provider does not know a machine that lives.",
        Fault.END_IGNORED: "The provider accepts the end of a machine, and does nothing.",
        Fault.END_UNANSWERED: "A machine is ended, and the answer is lost.",
        Fault.PREEMPTED: "A machine is taken away without a word.",
        Fault.DIES_AT_START: "A machine exits before its worker has reported, and the provider says so.",
        Fault.NEVER_BOOTS: "A machine runs, and nobody reports for duty from it.",
        Fault.POISON: "A job kills whoever runs it.",
        Fault.CRASHING_HANDLER: "A job ends the process of its handler.",
        Fault.FAILING_HANDLER: "A job fails, at first or always.",
        Fault.HANGING_HANDLER: "A job runs far past its time.",
        Fault.DEAF_HANDLER: "A job hears no cancel.",
        Fault.SERVICE_AWAY: "The external service does not answer for a while.",
        Fault.SERVICE_FORGETS: "The external service is restarted, and knows no job any more.",
        Fault.SERVICE_MUTE: "The external service does not say that a job is over.",
        Fault.SERVICE_UNANSWERED: "The external service has taken a job, and the answer is lost.",
        Fault.SERVICE_VANISHED: "A job never reaches the external service, and nobody says so.",
        Fault.BUS_AWAY: "Redis answers nobody for a while.",
        Fault.BUS_FLUSHED: "Redis forgets everything.",
        Fault.BUS_UNANSWERED: "Redis has done what it was asked, and the answer is lost.",
        Fault.STREAM_DELETED: "Somebody deletes a stream, or only its group.",
        Fault.ENTRY_LOST: "An entry of a stream is lost.",
        Fault.ENTRY_DOUBLED: "An entry of a stream is read twice.",
        Fault.ENTRY_FORGED: "Somebody adds an entry that no job stands behind, or that says something wrong of one.",
    }
)
