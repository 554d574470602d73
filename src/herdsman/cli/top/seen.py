"""What is asked of the server, all of one moment together."""

from collections.abc import Sequence
from dataclasses import dataclass

from herdsman.client import Client, calls, dashboard_calls
from herdsman.core.states import HELD, JobState
from herdsman.wire.dashboard import HerdOut, OverviewOut
from herdsman.wire.jobs import JobOut

MOST_JOBS = 50


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs are listed."""

    name: str
    states: tuple[JobState, ...] = ()


CHOICES = (
    Choice("all"),
    Choice("waiting", (JobState.PENDING, JobState.SCHEDULED)),
    Choice("running", HELD),
    Choice("failed", (JobState.FAILED, JobState.DEAD_LETTER)),
)


@dataclass(frozen=True, slots=True)
class Seen:
    overview: OverviewOut
    herd: HerdOut
    jobs: Sequence[JobOut]
    choice: Choice


def look(client: Client, choice: Choice = CHOICES[0]) -> Seen:
    jobs = client.send(calls.jobs(statuses=choice.states, limit=MOST_JOBS)).jobs
    return Seen(
        overview=client.send(dashboard_calls.overview()),
        herd=client.send(dashboard_calls.herd()),
        jobs=jobs,
        choice=choice,
    )
