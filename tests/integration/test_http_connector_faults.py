"""The http connector against a service on which something goes wrong: what is told, in which class, and after how long."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from herdsman.connectors.http import HttpConnector
from herdsman.errors import ServiceRejected, ServiceUnavailable, SubmissionUnknown, TooLarge
from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Ended, Unknown, Working
from herdsman.ports import SystemClock
from tests.support.http_options import (
    QUICK,
    a_job,
    opened,
    polled,
    sync,
)
from tests.support.http_service import FakeHttpService, Fault, wait_for


@pytest.fixture
def service() -> Iterator[FakeHttpService]:
    with FakeHttpService() as running:
        yield running


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        (Fault.HTML, SubmissionUnknown, "Please log in"),
        (Fault.UNAUTHORIZED, ServiceRejected, "option headers"),
        (Fault.TOO_MANY, ServiceUnavailable, "429"),
        (Fault.SERVER_ERROR, SubmissionUnknown, "500"),
        (Fault.CUT, SubmissionUnknown, "was not answered"),
        (Fault.SLOW, SubmissionUnknown, "was not answered"),
        (Fault.REDIRECT, ServiceRejected, "/elsewhere"),
    ],
)
def test_a_submission_that_goes_wrong_is_told_in_the_right_class(
    service: FakeHttpService, fault: Fault, error: type[Exception], told: str
) -> None:
    service.add_fault(fault, path="/jobs")
    with opened({**polled(service.url), "timeout_s": 1}) as connector:
        with pytest.raises(error, match=told) as caught:
            connector.submit(a_job(do="good"), "x-1")
        assert type(caught.value) is error
        if isinstance(caught.value, ServiceRejected):
            assert caught.value.retry


def test_a_job_that_the_service_calls_wrong_is_not_tried_again(service: FakeHttpService) -> None:
    with (
        opened(polled(service.url)) as connector,
        pytest.raises(ServiceRejected, match="says what to do") as caught,
    ):
        connector.submit(a_job(what="nothing"), "x-1")
    assert not caught.value.retry


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR_AFTER, Fault.CUT, Fault.SLOW])
def test_a_job_that_was_taken_without_a_word_is_found_and_heard(service: FakeHttpService, fault: Fault) -> None:
    service.add_fault(fault, path="/jobs")
    with opened({**polled(service.url), "timeout_s": 1}) as connector:
        with pytest.raises(SubmissionUnknown):
            connector.submit(a_job(do="long"), "x-1")
        wait_for(lambda: isinstance(connector.check("x-1"), Working))
        service.release()
        wait_for(lambda: isinstance(connector.listen("x-1", QUICK), Ended))
    assert service.jobs["x-1"].runs == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault.HTML,
        Fault.UNAUTHORIZED,
        Fault.TOO_MANY,
        Fault.SERVER_ERROR,
        Fault.CUT,
        Fault.SLOW,
        Fault.REDIRECT,
    ],
)
def test_a_look_that_goes_wrong_is_never_a_verdict(service: FakeHttpService, fault: Fault) -> None:
    with opened({**polled(service.url), "timeout_s": 1, "not_found": [410]}) as connector:
        connector.submit(a_job(do="good"), "x-1")
        service.add_fault(fault, path="/jobs/x-1")
        with pytest.raises(ServiceUnavailable):
            connector.check("x-1")
        service.add_fault(fault, path="/jobs/x-1", times=2)
        assert connector.listen("x-1", timedelta(milliseconds=1)) is None


def test_a_service_that_hangs_costs_no_more_than_the_timeout(service: FakeHttpService) -> None:
    with opened({**polled(service.url), "timeout_s": 0.5}) as connector:
        service.add_fault(Fault.SLOW, path="/jobs")
        began = SystemClock().monotonic()
        with pytest.raises(ServiceUnavailable):
            connector.check("x-1")
        assert SystemClock().monotonic() - began < 5


def test_an_answer_without_end_is_refused(service: FakeHttpService) -> None:
    with opened({**polled(service.url), "max_answer_mb": 1}) as connector:
        service.add_fault(Fault.HUGE, path="/jobs/x-1")
        with pytest.raises(TooLarge, match="max_answer_mb"):
            connector.check("x-1")


def test_a_service_that_wants_to_be_left_alone_is_left_alone(service: FakeHttpService) -> None:
    with opened(polled(service.url)) as connector:
        service.add_fault(Fault.TOO_MANY, path="/jobs")
        with pytest.raises(ServiceUnavailable, match="429"):
            connector.submit(a_job(do="good"), "x-1")
        with pytest.raises(ServiceUnavailable, match="left alone"):
            connector.submit(a_job(do="good"), "x-1")
        assert len(service.requests) == 1, "it was asked again at once"
        wait_for(lambda: isinstance(_try(connector), str))
    assert service.jobs["x-1"].runs == 1


def _try(connector: HttpConnector) -> str | None:
    try:
        return connector.submit(a_job(do="good"), "x-1")
    except ServiceUnavailable:
        return None


def test_a_failure_is_told_in_the_words_of_the_service_and_in_its_class(service: FakeHttpService) -> None:
    with opened(polled(service.url)) as connector:
        connector.submit(a_job(do="bad", message="CUDA out of memory"), "x-1")
        verdict = connector.check("x-1")
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is FailureClass.OUT_OF_MEMORY
    assert verdict.failure.error == "CUDA out of memory"


def test_a_cancelled_job_that_is_gone_was_stopped_and_is_not_lost(service: FakeHttpService) -> None:
    with opened(polled(service.url)) as connector:
        connector.submit(a_job(do="long"), "x-1")
        connector.cancel("x-1")
        service.forget("x-1")
        verdict = connector.check("x-1")
    assert isinstance(verdict, Broken)
    assert verdict.cancelled


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.HTML, FailureClass.INFRASTRUCTURE),
        (Fault.UNAUTHORIZED, FailureClass.INFRASTRUCTURE),
        (Fault.SERVER_ERROR, FailureClass.INFRASTRUCTURE),
        (Fault.CUT, FailureClass.INFRASTRUCTURE),
        (Fault.SLOW, FailureClass.INFRASTRUCTURE),
        (Fault.HUGE, FailureClass.USER_ERROR),
    ],
)
def test_a_call_that_goes_wrong_breaks_the_job_in_the_right_class(
    service: FakeHttpService, fault: Fault, kind: FailureClass
) -> None:
    service.add_fault(fault, path="/sync")
    with opened({**sync(service.url), "sync_timeout_s": 2, "max_answer_mb": 1}) as connector:
        connector.submit(a_job(do="good"), "x-1")
        wait_for(lambda: isinstance(connector.listen("x-1", QUICK), Ended))
        verdict = connector.check("x-1")
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is kind


def test_a_call_that_is_given_up_is_cut(service: FakeHttpService) -> None:
    with opened(sync(service.url)) as connector:
        connector.submit(a_job(do="long"), "x-1")
        assert connector.listen("x-1", QUICK) is None
        assert _calls() == ["call x-1"]
        connector.close()
        assert _calls() == []
        assert isinstance(connector.check("x-1"), Unknown)


def _calls() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("call ")]
