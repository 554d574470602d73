"""The contract suite notices: each promise that a connector breaks fails the test that asks for it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from uuid import uuid4

import pytest

from herdsman.connectors.registry import Around
from herdsman.errors import ServiceUnavailable
from herdsman.jobs.protocol import (
    Broken,
    Ended,
    Finished,
    Fitness,
    Heard,
    ServiceJob,
    Unknown,
    Verdict,
    Working,
)
from herdsman.ports import Connector, SystemClock
from herdsman.testing.connector_contract import ConnectorContract
from tests.support.memory_results import MemoryResults
from tests.support.memory_service import SERVICES, MemoryConnector, MemoryService


class SubmitsTwice(MemoryConnector):
    def submit(self, job: ServiceJob, external_id: str) -> str:
        super().submit(job, external_id)
        return super().submit(job, external_id)


class ChoosesItsOwnId(MemoryConnector):
    def submit(self, job: ServiceJob, external_id: str) -> str:
        return super().submit(job, f"own-{external_id}")


class NeverHears(MemoryConnector):
    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        super().listen(external_id, min(silence, timedelta(milliseconds=10)))
        return None


class HearsTooEarly(MemoryConnector):
    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        del external_id, silence
        return Ended()


class ListensTooLong(MemoryConnector):
    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        return super().listen(external_id, silence + timedelta(seconds=1))


class FetchesSomethingElse(MemoryConnector):
    numbers: Iterator[int] = count()

    def fetch(self, job: ServiceJob, external_id: str, finished: Finished) -> object:
        return {"number": next(self.numbers), "of": super().fetch(job, external_id, finished)}


class CallsTheUnknownWorking(MemoryConnector):
    def check(self, external_id: str) -> Verdict:
        verdict = super().check(external_id)
        return Working() if isinstance(verdict, Unknown) else verdict


class CallsTheRunningUnknown(MemoryConnector):
    def check(self, external_id: str) -> Verdict:
        verdict = super().check(external_id)
        return Unknown("it is not in the history") if isinstance(verdict, Working) else verdict


class CallsTheBrokenFinished(MemoryConnector):
    def check(self, external_id: str) -> Verdict:
        verdict = super().check(external_id)
        return Finished(outputs={"text": "done"}) if isinstance(verdict, Broken) else verdict


class CancelsEverything(MemoryConnector):
    def cancel(self, external_id: str) -> None:
        del external_id
        self._service.jobs = dict.fromkeys(self._service.jobs, "cancelled")


class CancelsNothing(MemoryConnector):
    def cancel(self, external_id: str) -> None:
        pass


class KnowsItsOwnJobsOnly(MemoryConnector):
    def __init__(self, service: str, around: Around) -> None:
        super().__init__({"service": service}, around)
        self._own: set[str] = set()

    def submit(self, job: ServiceJob, external_id: str) -> str:
        self._own.add(external_id)
        return super().submit(job, external_id)

    def check(self, external_id: str) -> Verdict:
        return super().check(external_id) if external_id in self._own else Unknown("not mine")


class NeverFit(MemoryConnector):
    def fitness(self) -> Fitness:
        return Fitness(fault="it is not well")


class ClosesForGood(MemoryConnector):
    closed = False

    def submit(self, job: ServiceJob, external_id: str) -> str:
        assert not self.closed, "it is closed"
        return super().submit(job, external_id)

    def close(self) -> None:
        self.closed = True


class TakesAwayForGone(MemoryConnector):
    """With nobody at the other end it says that the job is not known."""

    def submit(self, job: ServiceJob, external_id: str) -> str:
        raise ServiceUnavailable(f"nobody is there to take {job.job_id} as {external_id}")

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:
        del external_id, silence
        return None


class Suite(ConnectorContract):
    patience = timedelta(seconds=1)
    silence = timedelta(milliseconds=20)
    late = timedelta(milliseconds=500)

    def __init__(self, kind: type[MemoryConnector]) -> None:
        self.kind = kind
        self.key = uuid4().hex
        self.service = SERVICES[self.key] = MemoryService()

    def opened(self) -> Connector:
        around = Around(clock=SystemClock(), results=MemoryResults())
        if self.kind is KnowsItsOwnJobsOnly:
            return KnowsItsOwnJobsOnly(self.key, around)
        return self.kind({"service": self.key}, around)

    def good_job(self) -> ServiceJob:
        return ServiceJob(job_id="job-1", type="memory", payload="good")

    def bad_job(self) -> ServiceJob:
        return replace(self.good_job(), payload="bad")

    def long_job(self) -> ServiceJob:
        return replace(self.good_job(), payload="long")

    def release(self) -> None:
        self.service.release()

    def another(self) -> Connector:
        return self.opened()

    def unreachable(self) -> Connector | None:
        return self.opened() if self.kind is TakesAwayForGone else None

    def forget(self, external_id: str) -> bool:
        del self.service.jobs[external_id]
        return True

    def times_run(self, external_id: str) -> int | None:
        return self.service.runs.get(external_id)


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (SubmitsTwice, Suite.test_a_job_is_handed_over_and_comes_to_its_end),
        (ChoosesItsOwnId, Suite.test_the_id_is_ours_where_the_connector_says_so),
        (NeverHears, Suite.test_the_end_of_a_job_is_heard),
        (HearsTooEarly, Suite.test_the_end_of_a_job_is_heard),
        (HearsTooEarly, Suite.test_listening_ends_when_it_is_quiet),
        (ListensTooLong, Suite.test_listening_ends_when_it_is_quiet),
        (FetchesSomethingElse, Suite.test_a_result_may_be_fetched_twice),
        (FetchesSomethingElse, Suite.test_a_job_that_has_ended_is_found_by_another_process),
        (CallsTheUnknownWorking, Suite.test_an_id_that_was_never_handed_over_is_unknown),
        (CallsTheUnknownWorking, Suite.test_a_job_that_the_service_forgot_is_unknown),
        (CallsTheRunningUnknown, Suite.test_a_running_job_is_working),
        (CallsTheRunningUnknown, Suite.test_a_job_that_runs_is_found_by_another_process),
        (CallsTheBrokenFinished, Suite.test_a_job_that_fails_is_broken_and_says_why),
        (CancelsEverything, Suite.test_cancelling_the_first_job_leaves_the_second),
        (CancelsEverything, Suite.test_cancelling_the_second_job_leaves_the_first),
        (CancelsEverything, Suite.test_cancelling_what_is_not_there_leaves_what_is),
        (CancelsNothing, Suite.test_cancelling_the_first_job_leaves_the_second),
        (KnowsItsOwnJobsOnly, Suite.test_a_job_that_has_ended_is_found_by_another_process),
        (NeverFit, Suite.test_a_service_that_answers_is_fit),
        (ClosesForGood, Suite.test_it_may_be_closed_twice_and_takes_another_job),
    ],
)
def test_a_broken_promise_is_noticed(
    kind: type[MemoryConnector], asked: Callable[[ConnectorContract, Connector], None]
) -> None:
    suite = Suite(kind)
    with pytest.raises(AssertionError):
        asked(suite, suite.opened())
    sound = Suite(MemoryConnector)
    asked(sound, sound.opened())


def test_a_verdict_from_nobody_is_noticed() -> None:
    with pytest.raises(AssertionError, match="a verdict from nobody"):
        Suite(TakesAwayForGone).test_a_service_that_is_away_is_never_a_verdict()
