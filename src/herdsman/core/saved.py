"""The GPU time that a recovered result has spared, as a worker reports it."""

from datetime import timedelta

from herdsman.core.errors import InvalidRequest

MOST_SAVED = timedelta(days=3650)
"""More than any job takes: a larger number is a mistake of whoever reports it."""


def check_saved(saved: timedelta | None) -> None:
    if saved is not None and not timedelta(0) <= saved <= MOST_SAVED:
        raise InvalidRequest(
            f"saved is {saved.total_seconds():g} seconds: it must be from 0 to {MOST_SAVED.total_seconds():g};"
            " leave it out where nothing was recovered"
        )
