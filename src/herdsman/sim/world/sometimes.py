"""Rare situations that must really have occurred, or a run without a violation proves nothing about them."""

from collections.abc import Mapping

from herdsman.sim.world.faults import Fault

OFTEN = (
    "added_again",
    "added_by_hand",
    "added_without_an_answer",
    "cancelled:cancelled",
    "poison",
    "repeated_by_a_person",
    "woken_early",
)
"""In so many seeds, at least 3 of 100, that even a short run has them."""

SELDOM = (
    "cancelled:running",
    "parted:dismissed",
    "parted:drained",
    "stale_end_refused",
)

SELDOM_FAULTS = frozenset(
    {Fault.CLOCK_JUMP, Fault.END_IGNORED, Fault.END_UNANSWERED, Fault.FIND_LIES, Fault.REJECTED}
)

SOMETIMES = (*OFTEN, *SELDOM, *(f"fault:{each}" for each in sorted(Fault)))

LONG_RUN = 1_000
"""From so many seeds on, everything must have occurred."""


def missing(notes: Mapping[str, int], seeds: int = LONG_RUN) -> list[str]:
    """What never occurred in a run of so many seeds, and should have."""
    faults = (f"fault:{each}" for each in sorted(set(Fault) - SELDOM_FAULTS))
    wanted = SOMETIMES if seeds >= LONG_RUN else (*OFTEN, *faults)
    return [situation for situation in wanted if not notes.get(situation)]
