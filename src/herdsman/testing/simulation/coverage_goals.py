"""Rare situations that must really have occurred, or a run without a violation proves nothing about them."""

from collections.abc import Mapping

from herdsman.testing.simulation.faults import Fault

FREQUENT = (
    "added_again",
    "added_by_hand",
    "added_without_an_answer",
    "cancelled:cancelled",
    "job:attempts_exhausted",
    "job:cancel_requested",
    "job:claim_expired",
    "job:kills_workers",
    "job:out_of_memory_again",
    "job:timeout",
    "leader_changed",
    "lease:claim_expired",
    "lease:released",
    "poison",
    "repeated_by_a_person",
    "restarted_in_place",
    "stream:quarantined",
    "woken_early",
    "worker:drained",
    "worker:lost",
)
"""In so many seeds, at least 3 of 100, that even a short run has them."""

RARE = (
    "cancelled:running",
    "checkpoint_found",
    "died_in_an_outage",
    "claims_held",
    "fenced",
    "job:recovered",
    "job:released",
    "job:requeued",
    "late_beat_refused",
    "lease:lease_expired",
    "lease_gone",
    "lease_not_released",
    "parted:dismissed",
    "parted:drained",
    "report_lost",
    "restore_recognised",
    "second_database_led",
    "stale_end_refused",
    "type_paused",
    "unserved_waited",
)

RARE_FAULTS = frozenset(
    {
        Fault.CLOCK_JUMP,
        Fault.END_IGNORED,
        Fault.END_UNANSWERED,
        Fault.FIND_LIES,
        Fault.PREEMPTED,
        Fault.PROVIDER_OUT,
        Fault.REJECTED,
        Fault.RESTORED_DATABASE,
        Fault.SERVICE_AWAY,
        Fault.SERVICE_FORGETS,
        Fault.SERVICE_MUTE,
        Fault.SERVICE_UNANSWERED,
        Fault.SERVICE_VANISHED,
        Fault.SPAWN_LATE,
        Fault.SPAWN_VANISHED,
        Fault.DATABASE_OUT,
    }
)

GOALS = (*FREQUENT, *RARE, *(f"fault:{each}" for each in sorted(Fault)))

LONG_RUN = 1_000
"""From so many seeds on, everything must have occurred."""


def missing(notes: Mapping[str, int], seeds: int = LONG_RUN) -> list[str]:
    """What never occurred in a run of so many seeds, and should have."""
    faults = (f"fault:{each}" for each in sorted(set(Fault) - RARE_FAULTS))
    wanted = GOALS if seeds >= LONG_RUN else (*FREQUENT, *faults)
    return [situation for situation in wanted if not notes.get(situation)]
