"""One attempt at a job on an external service, told by what the service says and when (S3)."""

from datetime import timedelta

import pytest

from herdsman.errors import ServiceRejected, SubmissionUnknown, TooLarge
from herdsman.ids import JobId
from herdsman.jobs.model import ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import Broken, Capabilities, Ended, Unknown, Working
from herdsman.wire import service_id
from herdsman.worker.context import Cancelled, Recovered, TryAgain, UserError
from herdsman.worker.service_run import Monitor, Watching
from tests.unit.worker.fake_service import AWAY, DONE, attempt

OURS = service_id(ClaimKey(JobId("j1"), 3))
STEP = Working(done=0.25, note="step 5 of 20")
ERROR = Broken(failure=Failure(kind=FailureClass.JOB_ERROR, error="a node failed"))


def test_the_id_is_written_down_before_anything_is_sent() -> None:
    given = attempt([Ended()], [DONE])
    seen: list[int] = []
    real = given.service.submit
    given.service.submit = lambda job, external_id: (seen.append(len(given.marks)), real(job, external_id))[1]
    assert given.run() == {"image": "a"}
    assert seen == [1]
    assert given.marks == [(OURS, "submitted")]


def test_the_id_belongs_to_the_claim() -> None:
    assert service_id(ClaimKey(JobId("j1"), 3)) != service_id(ClaimKey(JobId("j1"), 4))
    assert service_id(ClaimKey(JobId("j1"), 3)) != service_id(ClaimKey(JobId("j2"), 3))


def test_a_service_that_gives_its_own_id_is_remembered_by_that() -> None:
    given = attempt([Ended()], [DONE], submits=["theirs"])
    given.run()
    assert given.marks == [(OURS, "submitted"), ("theirs", "submitted")]


def test_news_are_told_as_progress() -> None:
    given = attempt([STEP, Ended()], [DONE])
    given.run()
    assert {"progress": 0.25, "note": "step 5 of 20"} in given.link.said


def test_an_end_that_was_never_heard_is_found_and_called_recovered() -> None:
    given = attempt([STEP], [DONE])
    found = given.run()
    assert found == Recovered({"image": "a"}, 41.0)
    assert given.service.did("submit") == [f"submit {OURS}"]
    assert (OURS, "checked") in given.marks


def test_a_job_that_speaks_is_not_asked_about() -> None:
    trickle: list[Working | None] = [Working(done=0.1), *[None] * 100] * 20
    given = attempt([*trickle, Ended()], [DONE])
    given.run()
    assert given.service.clock.now > 100 + 20 * 19
    assert len(given.service.did("check")) == 1, "only at its end"


def test_a_running_job_is_watched_on() -> None:
    given = attempt([*[None] * 400, Ended()], [Working(position=0), Working(position=0), DONE])
    assert given.run() == {"image": "a"}
    assert len(given.service.did("check")) == 3
    assert any("action=continue_monitoring" in line for line in given.lines)


def test_a_decision_is_logged_with_all_its_values() -> None:
    given = attempt([], [DONE])
    given.run()
    (line,) = [line for line in given.lines if line.startswith("health_check")]
    for word in ("job_id=j1", f"prompt_id={OURS}", "action=complete_job", "reason=", "inactive_s=30"):
        assert word in line


def test_a_failure_there_is_the_failure_of_the_job() -> None:
    assert attempt([Ended()], [ERROR]).run() == ERROR.failure


def test_a_job_that_the_service_forgot_goes_back_to_the_queue() -> None:
    with pytest.raises(TryAgain, match="return_to_queue: service_job_not_found"):
        attempt([STEP], [Unknown("neither queued nor in its history")]).run()


def test_a_service_that_does_not_answer_is_no_verdict() -> None:
    given = attempt([], [AWAY, AWAY, DONE])
    assert given.run() == Recovered({"image": "a"}, 41.0)


def test_a_service_that_stays_away_ends_the_attempt() -> None:
    with pytest.raises(TryAgain, match="could not be reached for 1"):
        attempt([], [AWAY]).run()


def test_one_answer_makes_up_for_earlier_silence() -> None:
    away_long = [AWAY] * 3
    given = attempt([], [*away_long, Working(position=0), *away_long, DONE])
    assert isinstance(given.run(), Recovered)


def test_a_job_of_an_earlier_claim_that_is_finished_is_adopted() -> None:
    given = attempt([], [DONE], before="theirs")
    assert given.run() == Recovered({"image": "a"}, 41.0)
    assert given.service.did("submit") == []
    assert given.marks == []


def test_a_job_of_an_earlier_claim_that_still_runs_is_attached_to() -> None:
    given = attempt([STEP, Ended()], [Working(position=2), DONE], before="theirs")
    assert given.run() == {"image": "a"}
    assert given.service.did("submit") == []
    assert given.service.did("attach") == ["attach theirs"]
    assert given.marks == [("theirs", "attached")]


@pytest.mark.parametrize("verdict", [Unknown("gone"), ERROR])
def test_a_job_that_is_not_there_any_more_is_handed_over_anew(verdict: Unknown | Broken) -> None:
    given = attempt([Ended()], [verdict, DONE], before="theirs")
    assert given.run() == {"image": "a"}
    assert given.service.did("submit") == [f"submit {OURS}"]


def test_a_service_that_is_away_at_first_is_waited_for_before_anything_is_sent() -> None:
    given = attempt([], [AWAY, AWAY, DONE], before="theirs")
    assert isinstance(given.run(), Recovered)
    assert given.service.did("submit") == []


def test_a_result_that_is_gone_is_made_again() -> None:
    given = attempt([Ended()], [DONE], before="theirs", fetches=[ServiceRejected("its file is gone", retry=True)])
    assert given.run() == {"image": "a"}
    assert given.service.did("submit") == [f"submit {OURS}"]


def test_a_connector_that_cannot_recover_is_not_asked() -> None:
    given = attempt([Ended()], [DONE], before="theirs", capabilities=Capabilities(recovers=False))
    given.run()
    assert len(given.service.did("check")) == 1


def test_a_submission_without_an_answer_is_looked_for_and_not_repeated() -> None:
    given = attempt([Ended()], [Unknown("not yet"), Working(position=0), DONE], submits=[SubmissionUnknown("cut")])
    assert given.run() == {"image": "a"}
    assert len(given.service.did("submit")) == 1


def test_a_submission_that_never_arrives_sends_the_job_back() -> None:
    given = attempt([], [Unknown("none")], submits=[SubmissionUnknown("a timeout")])
    with pytest.raises(TryAgain, match="return_to_queue: the submission failed: a timeout"):
        given.run()
    assert len(given.service.did("submit")) == 1
    assert given.marks == [(OURS, "submitted")], "the next claim asks for this id first"


def test_a_submission_to_a_service_that_is_away_is_repeated() -> None:
    given = attempt([Ended()], [DONE], submits=[AWAY, AWAY])
    assert given.run() == {"image": "a"}
    assert len(given.service.did("submit")) == 3


def test_a_job_that_the_service_refuses_is_wrong_or_in_the_wrong_place() -> None:
    with pytest.raises(UserError, match="no such input"):
        attempt(submits=[ServiceRejected("no such input")]).run()
    with pytest.raises(TryAgain, match="no such model here"):
        attempt(submits=[ServiceRejected("no such model here", retry=True)]).run()


@pytest.mark.parametrize(
    ("why", "cancels"), [("CANCELLED", True), ("TIMEOUT", True), ("DRAINED", False), ("LOST", False)]
)
def test_only_a_job_that_is_over_is_stopped_at_the_service(why: str, cancels: bool) -> None:
    given = attempt([STEP], [Working(position=0), Unknown("stopped")])
    given.link.stop, given.link.reason = True, why
    with pytest.raises(Cancelled):
        given.run()
    assert bool(given.service.did("cancel")) is cancels


def test_a_job_that_does_not_stop_is_not_waited_for_for_ever() -> None:
    given = attempt([STEP], [Working(position=0)])
    given.link.stop, given.link.reason = True, "CANCELLED"
    with pytest.raises(Cancelled):
        given.run()
    assert given.service.clock.now < 110


def test_a_job_that_stands_still_is_given_up_and_stopped() -> None:
    given = attempt([], [Working(position=0)])
    with pytest.raises(TryAgain, match="it runs, but nothing has moved for 9"):
        given.run()
    assert given.service.did("cancel") == [f"cancel {OURS}"]


def test_a_job_that_waits_behind_others_that_move_is_not_given_up() -> None:
    looks = [Working(position=1, ahead=f"p{number}") for number in range(200)]
    given = attempt([], [*looks, DONE])
    assert isinstance(given.run(), Recovered)


def test_the_connector_is_closed_however_it_ends() -> None:
    for given in (attempt([Ended()], [DONE]), attempt([Ended()], [ERROR])):
        given.run()
        assert given.service.log[-1] == "close"


def test_the_timer_turns_at_its_interval_and_acts_on_silence_alone() -> None:
    watching = Watching(interval=timedelta(seconds=10), inactivity=timedelta(seconds=30))
    monitor = Monitor(watching, 0)
    assert [second for second in range(100) if monitor.is_due(second)] == [30, 40, 50, 60, 70, 80, 90]
    monitor.heard(95)
    assert not monitor.is_due(100)
    assert monitor.inactive(100) == 5


def test_a_job_that_runs_and_does_not_move_is_given_up() -> None:
    monitor = Monitor(Watching(stall=timedelta(seconds=10)), 0)
    assert monitor.stalled(Working(position=0, done=0.5), 5) is None
    assert monitor.stalled(Working(position=0, done=0.5), 14) is None
    assert "nothing has moved for 10 seconds" in (monitor.stalled(Working(position=0, done=0.5), 15) or "")
    monitor.heard(15)
    assert monitor.stalled(Working(position=0, done=0.5), 16) is None


def test_waiting_behind_the_work_of_others_is_no_stall_and_its_end_begins_the_count() -> None:
    """However long the one before it takes: only the job's own timeout ends that."""
    monitor = Monitor(Watching(stall=timedelta(seconds=10)), 0)
    behind = Working(position=1, ahead="theirs")
    assert [monitor.stalled(behind, second) for second in (5, 20, 90_000)] == [None, None, None]
    assert monitor.stalled(Working(position=0), 90_005) is None
    assert monitor.stalled(Working(position=0), 90_015) is not None


def test_the_place_in_the_queue_of_the_service_is_told() -> None:
    given = attempt([*[None] * 400, Ended()], [Working(position=3), Working(position=1), DONE])
    given.run()
    notes = [word["note"] for word in given.link.said if "note" in word]
    assert notes == ["waits at the service, 3 jobs before it", "waits at the service, 1 job before it"]


def test_a_service_that_tells_no_more_than_that_it_works_is_left_to_the_timeout_of_the_job() -> None:
    monitor = Monitor(Watching(stall=timedelta(seconds=10)), 0)
    assert [monitor.stalled(Working(), second) for second in (5, 20, 90)] == [None, None, None]


def test_a_result_that_is_too_large_is_the_job_s_own_fault() -> None:
    with pytest.raises(UserError, match="RESULT_MAX_FILE_MB"):
        attempt([Ended()], [DONE], fetches=[TooLarge("a.png is over RESULT_MAX_FILE_MB")]).run()
