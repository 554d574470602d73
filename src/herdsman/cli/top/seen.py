"""What is asked of the server, all of one moment together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from herdsman.cli.look_door import Kind
from herdsman.core.model import JobFilter
from herdsman.core.states import HELD, JobState
from herdsman.wire.explain import EtaOut, WhyOut
from herdsman.wire.fleet import DrainedOut, HerdOut, OverviewOut
from herdsman.wire.jobs import AttemptsOut, JobDetail, JobOut, JobsOut, LogsOut, RetryIn

MOST_JOBS = 50


class Sight(Protocol):
    """What `top` needs of a door."""

    def overview(self) -> OverviewOut: ...

    def herd(self) -> HerdOut: ...

    def page(self, wanted: JobFilter, after: str | None, limit: int) -> JobsOut: ...

    def look(self, job_id: str) -> JobDetail: ...

    def attempts(self, job_id: str) -> AttemptsOut: ...

    def logs(self, job_id: str, since: str | None) -> LogsOut: ...

    def why(self, kind: Kind, named: str) -> WhyOut: ...

    def eta(self, job_id: str) -> EtaOut: ...

    def cancel(self, job_id: str) -> str: ...

    def retry(self, job_id: str, wanted: RetryIn) -> None: ...

    def drain_worker(self, worker_id: str) -> DrainedOut: ...


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


def look(door: Sight, choice: Choice = CHOICES[0]) -> Seen:
    jobs = door.page(JobFilter(states=choice.states), None, MOST_JOBS).jobs
    return Seen(overview=door.overview(), herd=door.herd(), jobs=jobs, choice=choice)
