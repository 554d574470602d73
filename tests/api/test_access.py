"""X1, X2: every route has its line, every line its route, and each role gets exactly what the line says."""

import pytest
from fastapi import APIRouter, FastAPI

from herdsman.access.rules import Role
from herdsman.server.access import MATRIX, OPEN
from herdsman.server.app import ROUTERS, check_complete, create_app, served
from herdsman.server.state import ServerState
from tests.api.calling import Client
from tests.api.conftest import Tokens

LINES = sorted(MATRIX)
FILLED = {
    "version": "1",
    "kind": "job",
    "id": "j1",
    "cycle": "1",
    "pool_id": "p1",
    "job_id": "j1",
    "name": "a.png",
    "folder": "pages",
    "worker_id": "ann",
    "token": "no-such-lease-token",
    "uuid": "GPU-0",
    "node_id": "n1",
    "token_id": "0123456789abcdef",
}


def path_of(template: str) -> str:
    return template.format(**FILLED)


@pytest.mark.parametrize("role", Role)
def test_x1_each_role_gets_what_its_lines_say_and_nothing_else(client: Client, tokens: Tokens, role: Role) -> None:
    header = tokens.header(role)
    for method, template in LINES:
        if method == "GET" and template == "/events":
            continue  # a stream that does not end; its own test calls it
        answer = client.request(method, path_of(template), headers=header)
        refused = answer.status_code == 403 and "with the role" in answer.json()["detail"]
        assert refused is (role not in MATRIX[method, template]), f"{role} {method} {template}"


def test_a_stream_is_closed_to_those_without_the_right(client: Client, tokens: Tokens) -> None:
    for role in set(Role) - MATRIX["GET", "/events"]:
        assert client.get("/events", headers=tokens.header(role, f"a-{role}")).status_code == 403


@pytest.mark.parametrize(("method", "template"), LINES)
def test_x1_nothing_else_is_open(client: Client, method: str, template: str) -> None:
    answer = client.request(method, path_of(template))
    assert (answer.status_code == 401) is ((method, template) not in OPEN)


def test_without_a_token_nobody_learns_which_paths_exist(client: Client) -> None:
    assert client.get("/no/such/path").status_code == 401
    assert client.get("/docs").status_code == 401


def test_liveness_and_the_empty_pages_are_the_only_open_lines() -> None:
    pages = {("GET", "/"), ("GET", "/assets/{name}"), ("GET", "/assets/{folder}/{name}")}
    assert {("GET", "/health/live")} | pages == OPEN


@pytest.mark.parametrize("path", ["/", "/assets/app.js", "/health/live"])
def test_what_is_open_may_be_asked_for_without_its_body(client: Client, path: str) -> None:
    whole, head = client.get(path), client.request("HEAD", path)
    assert (head.status_code, head.content) == (whole.status_code, b"") == (200, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers.get(name) == whole.headers.get(name)


def test_what_is_closed_is_closed_to_head_too(client: Client) -> None:
    assert client.request("HEAD", "/jobs").status_code == 401
    assert client.request("HEAD", "/no/such/path").status_code == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_the_pages_are_open_to_be_read_only(client: Client, method: str) -> None:
    assert client.request(method, "/").status_code == 401
    assert client.request(method, "/assets/app.js").status_code == 401


def test_a_route_without_a_line_keeps_the_app_from_starting(state: ServerState) -> None:
    more = APIRouter()
    more.add_api_route("/forgotten", lambda: None, methods=["GET"])
    with pytest.raises(AssertionError, match="/forgotten"):
        create_app(state, routers=(*ROUTERS, more))


def test_a_mounted_app_keeps_the_app_from_starting(state: ServerState) -> None:
    app = create_app(state)  # one whose routes no other test shares
    app.mount("/other", FastAPI())
    with pytest.raises(AssertionError, match="rights lacks"):
        check_complete(app)


def test_a_line_without_a_route_keeps_the_app_from_starting(state: ServerState) -> None:
    with pytest.raises(AssertionError, match="without a route"):
        create_app(state, routers=())


def test_what_is_served_is_what_is_listed(app: FastAPI) -> None:
    assert served(app) == MATRIX.keys()


def test_the_role_of_a_caller_cannot_be_typed(client: Client, tokens: Tokens) -> None:
    """X2: a token with another role written on it is another token."""
    secret = tokens.of(Role.VIEWER).secret.replace("_viewer_", "_admin_")
    assert client.get("/tokens", headers={"authorization": f"Bearer {secret}"}).status_code == 401
