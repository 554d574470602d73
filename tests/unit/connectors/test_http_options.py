"""What an operator writes about a service: templates, paths, values, and what is said when they are wrong."""

import math
from typing import Any

import pytest

from herdsman.connectors.http.connector import accepted, question_of, values_of, verdict_of
from herdsman.connectors.http.options import HttpOptions, StatusOptions
from herdsman.connectors.http.template import JsonPath, fill, fill_text, fill_url
from herdsman.connectors.http.wire import Answer
from herdsman.connectors.registry import read_options
from herdsman.errors import InvalidSettings, ServiceRejected, ServiceUnavailable, SubmissionUnknown
from herdsman.jobs.model import FailureClass
from herdsman.jobs.protocol import Broken, Finished, ServiceJob, Working

VALUES: dict[str, object] = {
    "external_id": "x/1",
    "model": None,
    "payload": {"prompt": "a cat", "steps": 20, "sizes": [512, 768], "deep": {"on": True}},
}


def an_options(**more: object) -> dict[str, Any]:
    status = {"url": "http://svc:8000/jobs/{id}", "path": "$.state", "done": ["done"]}
    return {"submit": {"url": "http://svc:8000/jobs"}, "status": status, **more}


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{payload.prompt}", "a cat"),
        ("{payload.steps}", 20),
        ("{payload.sizes.1}", 768),
        ("{payload.deep}", {"on": True}),
        ("{model}", None),
        ("{payload.steps} steps", "20 steps"),
        ("{payload.deep.on}!", "true!"),
        ("{{payload.prompt}} {payload.prompt}", "{payload.prompt} a cat"),
        ({"a": ["{payload.steps}", 1, None, {"b": "{external_id}"}]}, {"a": [20, 1, None, {"b": "x/1"}]}),
        ("{ not a place }", "{ not a place }"),
    ],
)
def test_a_place_that_stands_alone_keeps_its_type(template: object, filled: object) -> None:
    assert fill(template, VALUES) == filled


@pytest.mark.parametrize("place", ["payload.seed", "payload.prompt.x", "payload.sizes.7", "payload.deep.off"])
def test_what_a_job_lacks_is_named_and_the_job_is_to_blame(place: str) -> None:
    with pytest.raises(ServiceRejected, match=place.replace(".", r"\.")) as caught:
        fill({"x": f"{{{place}}}"}, VALUES)
    assert not caught.value.retry


def test_a_whole_object_does_not_fit_into_a_text() -> None:
    with pytest.raises(ServiceRejected, match=r"payload\.deep"):
        fill_text("see {payload.deep}", VALUES)


def test_what_is_filled_into_an_address_cannot_leave_its_place() -> None:
    nasty: dict[str, object] = {"id": "../../admin?x=1#y"}
    assert fill_url("http://svc/jobs/{id}/state", nasty) == "http://svc/jobs/..%2F..%2Fadmin%3Fx%3D1%23y/state"
    host: dict[str, object] = {"payload": {"h": "evil.example/x@svc"}}
    assert fill_url("http://{payload.h}.svc/", host) == "http://evil.example%2Fx%40svc.svc/"
    whole: dict[str, object] = {"payload": {"u": "http://a.example/b?c=d"}}
    assert fill_url("{payload.u}", whole) == "http://a.example/b?c=d"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option submit"),
        (an_options(submit={"url": "ftp://svc/jobs"}), "option submit.url: 'ftp://svc/jobs' is no address"),
        (an_options(submit={"url": "http://me:pw@svc/"}), "option submit.url: a user or a password"),
        (an_options(submit={"url": "http://svc/{payload.x}/{nothing}"}), "nothing fills {nothing}"),
        (an_options(submit={"url": "http://svc/", "json": {"a": ["{id}"]}}), "nothing fills {id}"),
        (an_options(submit={"url": "http://svc/", "json": "{model.x}"}), "nothing fills {model.x}"),
        (an_options(submit={"url": "http://svc/", "json": "{callback_url}"}), "there is no callback"),
        (an_options(submit={"url": "http://svc/", "method": "FETCH"}), "option submit.method"),
        (an_options(id="id"), "option id: 'id' is no JSONPath; write one such as $.id"),
        (an_options(id="$.a["), "option id: '$.a[' is no JSONPath"),
        (an_options(status={"url": "http://svc/{id}"}), "option status: path is missing"),
        (
            an_options(status={"url": "http://svc/{job_id}", "path": "$.s", "done": [1]}),
            "nothing fills {job_id}",
        ),
        (an_options(status={"path": "$.s"}), "path and done belong together"),
        (an_options(status={}), "nothing says how a job ends"),
        (an_options(sync=True), "sync stands alone"),
        (an_options(timeout_s=0), "option timeout_s"),
        (an_options(not_found=[200]), "option not_found"),
        (an_options(result={"url": "there"}), "'there' is no address"),
        (an_options(colour="red"), "option colour"),
        (an_options(callback={"port": 70000}), "option callback.port"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        read_options(HttpOptions, options)
    assert told in str(caught.value)


def test_a_secret_is_neither_shown_nor_repeated_in_an_error() -> None:
    assert "hunter2" not in repr(read_options(HttpOptions, an_options(headers={"Authorization": "hunter2"})))
    with pytest.raises(InvalidSettings) as caught:
        read_options(HttpOptions, an_options(headers={"Authorization": ["hunter2"]}))
    assert "hunter2" not in str(caught.value)


def test_only_hosts_that_the_operator_wrote_are_allowed_and_each_with_its_port() -> None:
    urls = {"url": "http://{payload.host}/jobs"}
    options = an_options(submit=urls, health="https://other.example/up", result={"url": "$.link"})
    assert read_options(HttpOptions, options).own_hosts() == ("other.example:443", "svc:8000")


def test_the_payload_is_the_body_unless_said_otherwise() -> None:
    job = ServiceJob(job_id="j-1", type="t", payload={"a": 1}, model="sdxl")
    question = question_of(read_options(HttpOptions, an_options()), values_of(job, "x-1"))
    assert question.content == b'{"a": 1}'
    templated = an_options(
        submit={"url": "http://svc/{model}", "headers": {"X-Job": "{job_id}"}, "json": ["{attempt}"]}
    )
    question = question_of(read_options(HttpOptions, templated), values_of(job, "x-1"))
    assert (question.url, question.headers["X-Job"], question.content) == ("http://svc/sdxl", "j-1", b"[1]")


STATUS = StatusOptions(
    path=JsonPath("$.state"),
    done=("done", True),
    failed=("failed",),
    cancelled=("gone",),
    running=("running",),
    error=JsonPath("$.error"),
    progress=JsonPath("$.progress"),
    progress_scale=100,
)


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        ({"state": "running", "progress": 25}, Working(done=0.25, note="running", position=0)),
        ({"state": "running", "progress": 250}, Working(done=1.0, note="running", position=0)),
        ({"state": "running", "progress": "half"}, Working(note="running", position=0)),
        ({"state": "running", "progress": math.nan}, Working(note="running", position=0)),
        ({"state": "queued"}, Working(note="queued")),
        ({"state": 1}, Working(note="1")),
        ({"state": "done"}, Finished(outputs={"answer": {"state": "done"}})),
        ({"state": True}, Finished(outputs={"answer": {"state": True}})),
    ],
)
def test_a_document_becomes_a_verdict(document: object, verdict: object) -> None:
    assert verdict_of(document, STATUS) == verdict


@pytest.mark.parametrize(
    ("document", "kind", "told"),
    [
        ({"state": "failed", "error": "bad seed"}, FailureClass.JOB_ERROR, "bad seed"),
        (
            {"state": "failed", "error": "torch.OutOfMemoryError: x"},
            FailureClass.OUT_OF_MEMORY,
            "OutOfMemory",
        ),
        ({"state": "failed", "error": {"code": 7}}, FailureClass.JOB_ERROR, "7"),
        ({"state": "failed"}, FailureClass.JOB_ERROR, "'failed', and no more"),
        ({"state": "gone"}, FailureClass.INTERRUPTED, "gone"),
    ],
)
def test_a_failure_has_a_class_and_the_words_of_the_service(document: object, kind: FailureClass, told: str) -> None:
    verdict = verdict_of(document, STATUS)
    assert isinstance(verdict, Broken)
    assert verdict.failure.kind is kind
    assert told in verdict.failure.error
    assert verdict.cancelled == (kind is FailureClass.INTERRUPTED)


@pytest.mark.parametrize("document", [{}, [], "done", None, {"status": "done"}])
def test_a_document_without_a_status_is_no_verdict(document: object) -> None:
    with pytest.raises(ServiceUnavailable, match=r"\$\.state"):
        verdict_of(document, STATUS)


def test_a_long_error_is_cut() -> None:
    verdict = verdict_of({"state": "failed", "error": "x" * 100_000}, STATUS)
    assert isinstance(verdict, Broken)
    assert len(verdict.failure.error) == 2000


def an_answer(status: int = 200, body: bytes = b"{}", **headers: str) -> Answer:
    return Answer(asked="POST http://svc/jobs", status=status, headers=headers, body=body)


@pytest.mark.parametrize(("body", "given"), [(b'{"id": "a-1"}', "a-1"), (b'{"id": 7}', "7")])
def test_the_id_of_the_service_is_read(body: bytes, given: str) -> None:
    assert accepted(an_answer(body=body), read_options(HttpOptions, an_options(id="$.id")), "x-1") == given


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b'{"id": null}',
        b'{"id": true}',
        b'{"id": ""}',
        b'{"id": "a\\nb"}',
        b'{"id": [1]}',
    ],
)
def test_a_submission_without_an_id_is_unknown_and_not_refused(body: bytes) -> None:
    with pytest.raises(SubmissionUnknown, match="id"):
        accepted(an_answer(body=body), read_options(HttpOptions, an_options(id="$.id")), "x-1")


@pytest.mark.parametrize(
    ("status", "kind", "retry"),
    [
        (400, ServiceRejected, False),
        (401, ServiceRejected, True),
        (403, ServiceRejected, True),
        (408, SubmissionUnknown, None),
        (413, ServiceRejected, False),
        (425, ServiceUnavailable, None),
        (429, ServiceUnavailable, None),
        (500, SubmissionUnknown, None),
        (501, ServiceRejected, True),
        (502, SubmissionUnknown, None),
        (503, ServiceUnavailable, None),
        (504, SubmissionUnknown, None),
    ],
)
def test_a_status_says_who_must_act(status: int, kind: type[Exception], retry: bool | None) -> None:
    with pytest.raises(kind) as caught:
        accepted(an_answer(status), read_options(HttpOptions, an_options()), "x-1")
    assert type(caught.value) is kind
    assert getattr(caught.value, "retry", None) is retry


def test_a_path_that_can_match_more_than_once_gives_a_list() -> None:
    document = {"images": [{"url": "a"}, {"url": "b"}], "one": ["c"]}
    assert JsonPath("$.images[*].url").value(document) == ["a", "b"]
    assert JsonPath("$.images[*].url").all(document) == ["a", "b"]
    assert JsonPath("$.one").all(document) == ["c"]
    assert JsonPath("$.images[0].url").value(document) == "a"
    assert JsonPath("$.none").value_or_none(document) is None
    assert JsonPath("$.none").all(document) == []
