"""What stands behind the question mark is understood or refused; it is never passed over."""

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.server.access import MATRIX, OPEN
from herdsman.states import JobStatus
from tests.api.calling import Client
from tests.api.conftest import Tokens, bearer
from tests.support.builders import a_job, an_ended_job

ADMIN = bearer("the-admin-key")


def test_no_route_passes_over_a_parameter_that_it_does_not_know(client: Client, tokens: Tokens) -> None:
    headers = {role: tokens.header(role, role) for role in Role}
    for method, path in sorted(MATRIX):
        header = {} if (method, path) in OPEN else headers[min(MATRIX[method, path])]
        asked = path.replace("{", "").replace("}", "")
        answer = client.request(method, f"{asked}?no_such_filter=1", headers=header)
        assert answer.status_code == 422, (method, path, answer.text)
        assert "no query parameter 'no_such_filter'" in answer.json()["detail"]


def test_the_refusal_names_the_parameters_that_there_are(client: Client) -> None:
    answer = client.get("/jobs?state=done", headers=ADMIN)
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:herdsman:invalid-request"
    assert answer.json()["detail"] == (
        "there is no query parameter 'state': GET /jobs takes status, type, agent, pool, tag, failure_class,"
        " begins, after, limit"
    )


def test_a_filter_with_two_values_is_refused_unless_it_takes_several(client: Client, services: Services) -> None:
    an_ended_job(services, JobStatus.DONE, job_id="ended")
    a_job(services, job_id="waits")
    assert client.get("/jobs?tag=a&tag=b", headers=ADMIN).status_code == 422
    found = client.get("/jobs?status=done&status=cancelled", headers=ADMIN).json()["jobs"]
    assert [each["job_id"] for each in found] == ["ended"]


def test_who_may_not_call_a_route_is_not_told_its_parameters(client: Client, tokens: Tokens) -> None:
    assert client.get("/tokens?x=1", headers=tokens.header(Role.VIEWER)).status_code == 403


def test_workers_are_filtered_by_status(client: Client, tokens: Tokens) -> None:
    tokens.of(Role.WORKER, "w1")
    ids = [each["worker_id"] for each in client.get("/workers?status=active", headers=ADMIN).json()["workers"]]
    assert ids == ["w1"]
    assert client.get("/workers?status=error", headers=ADMIN).json()["workers"] == []
