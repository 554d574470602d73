"""The promises of `herdsman.ports.Connector` as tests: a plugin brings the connector, the suite the questions.

    class TestMyService(ConnectorContract):
        @pytest.fixture
        def connector(self) -> Iterator[Connector]:
            with closing(MyConnector(...)) as opened:
                yield opened

Everything is told in plain assertions, so that the suite needs no test framework of its own.
"""

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from herdsman.errors import ServiceUnavailable
from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Ended, Finished, Heard, ServiceJob, Unknown, Verdict, Working
from herdsman.ports import Connector

LOOK_AGAIN_S = 0.05


class ConnectorContract:
    """Subclass it with a fixture `connector`, with the jobs, and with those of the hooks that fit."""

    patience: timedelta = timedelta(seconds=20)
    """How long a job may take to come to its end, or to be stopped."""
    silence: timedelta = timedelta(milliseconds=300)
    """How long the suite listens at a time."""
    late: timedelta = timedelta(seconds=2)
    """How much longer than it was asked to a connector may listen."""

    def good_job(self) -> ServiceJob:
        """One that comes to a good end by itself."""
        raise NotImplementedError("say which job succeeds")

    def bad_job(self) -> ServiceJob | None:
        """One that the service takes, and that fails there; None where there is none."""
        return None

    def long_job(self) -> ServiceJob:
        """One that runs until `release`, and then comes to a good end."""
        raise NotImplementedError("say which job runs long")

    def release(self) -> None:
        """Lets every long job come to its end."""
        raise NotImplementedError("say how a long job is released")

    def another(self) -> Connector | None:
        """A second connector to the same service, as another process would open it; None where that cannot be."""
        return None

    def unreachable(self) -> Connector | None:
        """The same connector with nobody at the other end; None where there is no other end."""
        return None

    def forget(self, external_id: str) -> bool:
        """Let the service forget a job; False where it never does."""
        del external_id
        return False

    def times_run(self, external_id: str) -> int | None:
        """How often the service really ran a job; None where nobody counts."""
        del external_id
        return None

    def test_it_has_a_name(self, connector: Connector) -> None:
        assert connector.name, "the name is empty"

    def test_a_job_is_handed_over_and_comes_to_its_end(self, connector: Connector) -> None:
        external_id = self._submit(connector, self.good_job())
        verdict = self._end(connector, external_id)
        assert isinstance(verdict, Finished), f"it ended as {verdict}"
        assert self.times_run(external_id) in {1, None}, f"it ran {self.times_run(external_id)} times"

    def test_the_id_is_ours_where_the_connector_says_so(self, connector: Connector) -> None:
        chosen = self.new_id()
        given = connector.submit(self.good_job(), chosen)
        if connector.capabilities.chooses_id:
            assert given == chosen, f"{given} is not the id that was chosen, {chosen}"
        assert given, "the id is empty"
        self._end(connector, given)

    def test_the_end_of_a_job_is_heard(self, connector: Connector) -> None:
        if not connector.capabilities.listens:
            return
        external_id = self._submit(connector, self.long_job())
        heard = connector.listen(external_id, self.silence)
        assert not isinstance(heard, Ended), "the end was heard before it came"
        self.release()
        self._eventually(lambda: isinstance(self._hear(connector, external_id), Ended), "no end was heard")
        verdict = self._end(connector, external_id)
        assert isinstance(verdict, Finished), f"it ended as {verdict}"

    def test_a_result_may_be_fetched_twice(self, connector: Connector) -> None:
        job = self.good_job()
        external_id = self._submit(connector, job)
        first, second = (_text(self._result(connector, job, external_id)) for _ in range(2))
        assert first == second, f"{first} and then {second}"
        assert self.times_run(external_id) in {1, None}, f"it ran {self.times_run(external_id)} times"

    def test_an_id_that_was_never_handed_over_is_unknown(self, connector: Connector) -> None:
        verdict = connector.check(self.new_id())
        assert isinstance(verdict, Unknown), f"it is {verdict}"
        assert verdict.reason, "nobody says why"

    def test_a_running_job_is_working(self, connector: Connector) -> None:
        external_id = self._submit(connector, self.long_job())
        verdict = connector.check(external_id)
        assert isinstance(verdict, Working), f"it is {verdict}"
        assert verdict.done is None or 0 <= verdict.done <= 1, f"{verdict.done} of it is done"
        self.release()
        self._end(connector, external_id)

    def test_a_job_that_fails_is_broken_and_says_why(self, connector: Connector) -> None:
        job = self.bad_job()
        if job is None:
            return
        verdict = self._end(connector, self._submit(connector, job))
        assert isinstance(verdict, Broken), f"it ended as {verdict}"
        assert isinstance(verdict.failure.kind, FailureClass), f"{verdict.failure.kind!r} is no class of failures"
        assert verdict.failure.error, "nobody says why"
        assert not verdict.cancelled, "nobody asked it to stop"

    def test_cancelling_the_first_job_leaves_the_second(self, connector: Connector) -> None:
        self._cancel_one_of_two(connector, first=True)

    def test_cancelling_the_second_job_leaves_the_first(self, connector: Connector) -> None:
        self._cancel_one_of_two(connector, first=False)

    def test_cancelling_what_is_not_there_leaves_what_is(self, connector: Connector) -> None:
        if not connector.capabilities.cancels:
            return
        external_id = self._submit(connector, self.long_job())
        connector.cancel(self.new_id())
        verdict = connector.check(external_id)
        assert isinstance(verdict, Working), f"it is {verdict}"
        self.release()
        self._end(connector, external_id)

    def test_listening_ends_when_it_is_quiet(self, connector: Connector) -> None:
        external_id = self._submit(connector, self.long_job())
        self._eventually(lambda: self._hear(connector, external_id) is None, "it is never quiet")
        self.release()
        self._end(connector, external_id)

    def test_a_service_that_is_away_is_never_a_verdict(self) -> None:
        connector = self.unreachable()
        if connector is None:
            return
        with closing(connector):
            job, external_id = self.good_job(), self.new_id()
            assert _is_unavailable(lambda: connector.submit(job, external_id)), "the job was handed over"
            assert self._hear(connector, external_id) is None, "news from nobody"
            if connector.capabilities.recovers:
                assert _is_unavailable(lambda: connector.check(external_id)), "a verdict from nobody"
            assert connector.fitness().fault, "nobody is there, and that is no fault"

    def test_a_job_that_runs_is_found_by_another_process(self, connector: Connector) -> None:
        second = self.another()
        if second is None or not connector.capabilities.recovers:
            return
        job = self.long_job()
        with closing(second):
            external_id = self._submit(connector, job)
            verdict = second.check(external_id)
            assert isinstance(verdict, Working), f"to another process it is {verdict}"
            second.attach(job, external_id)
            self.release()
            theirs = _text(self._result(second, job, external_id))
        ours = _text(self._result(connector, job, external_id))
        assert theirs == ours, f"{theirs} is not {ours}"
        assert self.times_run(external_id) in {1, None}, f"it ran {self.times_run(external_id)} times"

    def test_a_job_that_has_ended_is_found_by_another_process(self, connector: Connector) -> None:
        second = self.another()
        if second is None or not connector.capabilities.recovers:
            return
        job = self.good_job()
        external_id = self._submit(connector, job)
        ours = _text(self._result(connector, job, external_id))
        connector.close()
        with closing(second):
            verdict = second.check(external_id)
            assert isinstance(verdict, Finished), f"to another process it is {verdict}"
            theirs = _text(second.fetch(job, external_id, verdict))
        assert theirs == ours, f"{theirs} is not {ours}"

    def test_a_job_that_the_service_forgot_is_unknown(self, connector: Connector) -> None:
        external_id = self._submit(connector, self.good_job())
        self._end(connector, external_id)
        if not self.forget(external_id):
            return
        verdict = connector.check(external_id)
        assert isinstance(verdict, Unknown), f"it is {verdict}"

    def test_a_service_that_answers_is_fit(self, connector: Connector) -> None:
        assert connector.fitness().fault is None, connector.fitness().fault

    def test_it_may_be_closed_twice_and_takes_another_job(self, connector: Connector) -> None:
        for _ in range(2):
            self._end(connector, self._submit(connector, self.good_job()))
            connector.close()
            connector.close()
        assert connector.fitness().fault is None, connector.fitness().fault

    def new_id(self) -> str:
        """One that was never used."""
        return str(uuid4())

    def _submit(self, connector: Connector, job: ServiceJob) -> str:
        return connector.submit(job, self.new_id())

    def _hear(self, connector: Connector, external_id: str) -> Heard | None:
        """The next news, in time."""
        began = time.monotonic()
        heard = connector.listen(external_id, self.silence)
        took = timedelta(seconds=time.monotonic() - began)
        assert took <= self.silence + self.late, f"it listened for {took} where {self.silence} was asked"
        return heard

    def _end(self, connector: Connector, external_id: str) -> Verdict:
        """How it ends, seen as a worker sees it: it listens, and looks when it is quiet."""
        deadline = time.monotonic() + self.patience.total_seconds()
        while True:
            self._hear(connector, external_id)
            verdict = connector.check(external_id)
            if not isinstance(verdict, Working):
                return verdict
            assert time.monotonic() < deadline, f"{external_id} has no end after {self.patience}: {verdict}"
            time.sleep(LOOK_AGAIN_S)

    def _result(self, connector: Connector, job: ServiceJob, external_id: str) -> object:
        verdict = self._end(connector, external_id)
        assert isinstance(verdict, Finished), f"it ended as {verdict}"
        return connector.fetch(job, external_id, verdict)

    def _cancel_one_of_two(self, connector: Connector, *, first: bool) -> None:
        second = self.another()
        if second is None or not connector.capabilities.cancels:
            return
        with closing(second):
            both = [
                (each, self._submit(each, replace(self.long_job(), job_id=self.new_id())))
                for each in (connector, second)
            ]
            (stopping, stopped), (staying, stayed) = both if first else reversed(both)
            stopping.cancel(stopped)
            self._eventually(lambda: _is_over(stopping.check(stopped)), f"{stopped} is not stopped")
            verdict = staying.check(stayed)
            assert isinstance(verdict, Working), f"the other one is {verdict}"
            self.release()
            verdict = self._end(staying, stayed)
            assert isinstance(verdict, Finished), f"the other one ended as {verdict}"

    def _eventually(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + self.patience.total_seconds()
        while not holds():
            assert time.monotonic() < deadline, f"{otherwise} after {self.patience}"
            time.sleep(LOOK_AGAIN_S)


def _is_over(verdict: Verdict) -> bool:
    """Stopped, and not by its own good end."""
    assert not isinstance(verdict, Finished), "it came to its end all the same"
    assert not isinstance(verdict, Broken) or verdict.cancelled, f"it was asked to stop, and is {verdict}"
    return not isinstance(verdict, Working)


def _is_unavailable(call: Callable[[], object]) -> bool:
    try:
        call()
    except ServiceUnavailable:
        return True
    return False


def _text(result: object) -> str:
    """Results are compared as they are kept: as JSON."""
    return json.dumps(result, sort_keys=True, allow_nan=False)
