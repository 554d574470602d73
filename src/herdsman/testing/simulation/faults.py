"""The faults that a simulation injects: what each does, how often it strikes, and which of them a seed has."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Self

from herdsman.errors import InvalidRequest


class Fault(StrEnum):
    """Its name, the chance of it at every point where it may strike, and what it does."""

    CRASH = ("crash", 0.003, "A process is killed, at any point where it speaks to others.")
    STOP = ("stop", 0.003, "A process stands still for a while, and wakes where it was.")
    TWIN = ("twin", 0.002, "A process stands still, its successor is started meanwhile, and then it wakes.")
    PARTITION = ("partition", 0.002, "Nothing that a process asks of others gets through for a while.")
    CUT_BEFORE = ("cut_before", 0.02, "The connection to the database breaks before the commit.")
    CUT_AFTER = (
        "cut_after",
        0.03,
        "The connection to the database breaks after the commit: its outcome is unknown.",
    )
    ROLLED_BACK = ("rolled_back", 0.02, "All statements of a transaction have run, and then it is undone.")
    CONTENDED = ("contended", 0.03, "Another transaction was in the way: all of it is done again.")
    DATABASE_AWAY = ("database_away", 0.0004, "The database answers nobody for a while.")
    DATABASE_OUT = (
        "database_out",
        0.0006,
        "The database answers nobody for minutes, and a machine may die meanwhile.",
    )
    CLOCK_JUMP = ("clock_jump", 0.001, "The clock of the database is set, forwards or backwards.")
    COPIED_DATABASE = (
        "copied_database",
        0.3,
        "Replicas are started on a copy of the database, beside those of the original.",
    )
    FRESH_DATABASE = (
        "fresh_database",
        0.3,
        "Replicas are started on an empty database, with the same DEPLOYMENT_ID and provider.",
    )
    RESTORED_DATABASE = (
        "restored_database",
        0.2,
        "A backup takes the place of the database: what was written since then is forgotten.",
    )
    LOST_REQUEST = ("lost_request", 0.03, "What a worker says never arrives.")
    LOST_REPLY = ("lost_reply", 0.06, "What a worker says is done, and the answer is lost.")
    DOUBLED_REQUEST = ("doubled_request", 0.05, "What a worker says arrives twice.")
    NO_CAPACITY = ("no_capacity", 0.15, "The provider has no machine left.")
    PROVIDER_AWAY = (
        "provider_away",
        0.15,
        "The provider answers nothing, and asks to be left alone for a moment.",
    )
    PROVIDER_OUT = (
        "provider_out",
        0.005,
        "The provider answers nobody for longer than a machine may be unseen.",
    )
    REJECTED = ("rejected", 0.05, "The provider refuses the key until a person has repaired it.")
    SPAWN_UNANSWERED = ("spawn_unanswered", 0.3, "A machine is started, and the answer is lost.")
    SPAWN_VANISHED = ("spawn_vanished", 0.15, "A machine is not started, and nobody says so.")
    SPAWN_LATE = ("spawn_late", 0.2, "The answer to a start is lost, and the machine appears long after it.")
    LISTING_LAG = (
        "listing_lag",
        0.5,
        "A new machine is missing from listings for a while, and one that has ended is still there.",
    )
    LISTING_EMPTY = ("listing_empty", 0.12, "The provider lists no machine at all.")
    FIND_LIES = ("find_lies", 0.5, "The provider does not know a machine that lives.")
    END_IGNORED = ("end_ignored", 0.6, "The provider accepts the end of a machine, and does nothing.")
    END_UNANSWERED = ("end_unanswered", 0.6, "A machine is ended, and the answer is lost.")
    PREEMPTED = ("preempted", 0.15, "A machine is taken away without a word.")
    LEFTOVER = ("leftover", 0.3, "A machine of the fleet lives on from before, and no row knows it.")
    DIES_AT_START = (
        "dies_at_start",
        0.2,
        "A machine exits before its worker has reported, and the provider says so.",
    )
    NEVER_BOOTS = ("never_boots", 0.15, "A machine runs, and nobody reports for duty from it.")
    POISON = ("poison", 0.12, "A job kills whoever runs it.")
    CRASHING_HANDLER = ("crashing_handler", 0.12, "A job ends the process of its handler.")
    FAILING_HANDLER = ("failing_handler", 0.2, "A job fails, at first or always.")
    HANGING_HANDLER = ("hanging_handler", 0.12, "A job runs far past its time.")
    DEAF_HANDLER = ("deaf_handler", 0.12, "A job hears no cancel.")
    SERVICE_AWAY = ("service_away", 0.03, "The external service does not answer for a while.")
    SERVICE_FORGETS = (
        "service_forgets",
        0.02,
        "The external service is restarted, and knows no job any more.",
    )
    SERVICE_MUTE = ("service_mute", 0.3, "The external service does not say that a job is over.")
    SERVICE_UNANSWERED = (
        "service_unanswered",
        0.2,
        "The external service has taken a job, and the answer is lost.",
    )
    SERVICE_VANISHED = (
        "service_vanished",
        0.15,
        "A job never reaches the external service, and nobody says so.",
    )
    BUS_AWAY = ("bus_away", 0.005, "Redis answers nobody for a while.")
    BUS_FLUSHED = ("bus_flushed", 0.01, "Redis forgets everything.")
    BUS_UNANSWERED = ("bus_unanswered", 0.03, "Redis has done what it was asked, and the answer is lost.")
    STREAM_DELETED = ("stream_deleted", 0.01, "Somebody deletes a stream, or only its group.")
    ENTRY_LOST = ("entry_lost", 0.1, "An entry of a stream is lost.")
    ENTRY_DOUBLED = ("entry_doubled", 0.1, "An entry of a stream is read twice.")
    ENTRY_FORGED = (
        "entry_forged",
        0.02,
        "Somebody adds an entry that no job stands behind, or that says something wrong of one.",
    )

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
