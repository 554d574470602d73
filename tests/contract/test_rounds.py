"""What came together is one transaction on every database, and nobody in it suffers for another."""

import pytest

from herdsman.context import Services
from herdsman.db.errors import Duplicate
from herdsman.errors import Conflict, InvalidRequest, StaleWrite
from herdsman.ids import JobId, WorkerId
from herdsman.jobs.commands import find_history, find_job
from herdsman.jobs.model import ClaimKey, Failure, FailureClass, NewJob, Submitted
from herdsman.jobs.protocol import ClaimRequest, Done, Failed, GivenBack
from herdsman.jobs.worker_commands import Report
from herdsman.jobs.writer import Round, write_round
from herdsman.states import JobStatus
from tests.support.builders import a_claim, a_job, a_worker

BEGIN = ClaimRequest(begin=True)


def test_a_job_is_stored_and_given_to_a_worker_that_waits_in_one_transaction(services: Services) -> None:
    worker = a_worker(services)
    written = write_round(services, Round(news=[NewJob(type="demo")], asks={worker: BEGIN}))
    (submitted,), (claim,) = written.submitted, written.claims
    assert isinstance(submitted, Submitted)
    assert (claim.key.job_id, claim.worker_id) == (submitted.job_id, worker)
    job = find_job(services, submitted.job_id)
    assert job.status is JobStatus.RUNNING
    assert job.created_at == job.claimed_at == job.started_at
    seqs = [each.seq for each in find_history(services, submitted.job_id)]
    assert seqs == list(range(1, len(seqs) + 1))


def test_ends_of_several_workers_and_what_they_ask_for_next(services: Services) -> None:
    held = [a_claim(services, f"w{number}").key for number in range(4)]
    workers = [WorkerId(f"w{number}") for number in range(4)]
    reports = [
        Report(workers[3], [Done(held[3], {"n": 3})], BEGIN),
        Report(workers[0], [Failed(held[0], Failure(kind=FailureClass.USER_ERROR, error="no"))]),
        Report(workers[2], [GivenBack(held[2], "later")]),
        Report(workers[1], [Done(held[1], {"n": 1})], BEGIN),
    ]
    written = write_round(services, Round(news=[NewJob(type="demo"), NewJob(type="demo")], reports=reports))
    assert [told[0].status for told in written.told] == [
        *(JobStatus.DONE, JobStatus.DEAD_LETTER, JobStatus.PENDING, JobStatus.DONE)
    ]
    assert {claim.worker_id for claim in written.claims} == {workers[1], workers[3]}
    assert [find_job(services, held[number].job_id).result for number in (1, 3)] == [{"n": 1}, {"n": 3}]


def test_a_claim_that_is_another_s_by_now_is_refused_beside_good_ones(services: Services) -> None:
    held = [a_claim(services, f"w{number}").key for number in range(3)]
    workers = [WorkerId(f"w{number}") for number in range(3)]
    reports = [
        Report(workers[0], [Done(held[0], 0)]),
        Report(workers[1], [Done(ClaimKey(held[1].job_id, held[1].token + 1), 1)]),
        Report(workers[1], [Done(held[2], "not mine")]),
        Report(workers[2], [Done(held[2], 2), Done(held[2], 2)]),
    ]
    told = [result for each in write_round(services, Round(reports=reports)).told for result in each]
    assert [(each.status, each.stale) for each in told] == [
        *((JobStatus.DONE, False), (None, True), (None, True), (JobStatus.DONE, False), (JobStatus.DONE, False))
    ]
    assert find_job(services, held[2].job_id).result == 2


def test_a_submission_that_cannot_be_kept_is_answered_alone(services: Services) -> None:
    news = [NewJob(type="demo"), NewJob(type="no such type!"), NewJob(type="demo")]
    first, bad, third = write_round(services, Round(news=news)).submitted
    assert isinstance(bad, InvalidRequest)
    assert all(isinstance(each, Submitted) and each.created for each in (first, third))


def test_a_submission_that_was_sent_before_is_known_beside_new_ones(services: Services) -> None:
    a_job(services, job_id=JobId("known"), payload=1)
    worker = a_worker(services)
    news = [NewJob(type="demo", job_id=JobId("known"), payload=1), NewJob(type="demo")]
    written = write_round(services, Round(news=news, asks={worker: ClaimRequest()}))
    known, new = written.submitted
    assert known == Submitted(JobId("known"), created=False)
    assert isinstance(new, Submitted)
    assert new.created
    assert len(written.claims) == 1


def test_where_one_of_many_spoils_the_transaction_nothing_of_it_is_kept(services: Services) -> None:
    a_job(services, job_id=JobId("known"), payload=1)
    held, worker = a_claim(services).key, WorkerId("w1")
    news = [NewJob(type="demo", job_id=JobId("new")), NewJob(type="demo", job_id=JobId("known"), payload=2)]
    with pytest.raises(Conflict):
        write_round(services, Round(news=news, reports=[Report(worker, [Done(held, 1)])]))
    assert find_job(services, held.job_id).status is not JobStatus.DONE
    with pytest.raises(Exception, match="there is no job 'new'"):
        find_job(services, JobId("new"))


def test_a_report_that_names_no_claim_that_could_be_is_refused_before_its_round() -> None:
    with pytest.raises(InvalidRequest):
        Report(WorkerId("w"), [Done(ClaimKey(JobId("no such name!"), 1), None)]).check()
    with pytest.raises(StaleWrite):
        Report(WorkerId("w"), [Done(ClaimKey(JobId("j"), 2**63), None)]).check()


def test_a_worker_whose_slots_are_taken_gets_nothing_and_its_ends_are_kept(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second request of the same worker was faster, again and again."""

    def taken(*_: object) -> None:
        raise Duplicate("slot")

    held, worker = a_claim(services).key, WorkerId("w1")
    monkeypatch.setattr("herdsman.jobs.worker_commands.give", taken)
    written = write_round(services, Round(reports=[Report(worker, [Done(held, 1)], ClaimRequest())]))
    assert (written.told[0][0].status, len(written.claims)) == (JobStatus.DONE, 0)
    assert write_round(services, Round(asks={worker: ClaimRequest()})).claims == ()
