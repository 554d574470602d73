"""A3: in no field of any body does a value that a database cannot keep become more than a clear no."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from herdsman.control.services import Services
from herdsman.core.access import Role
from herdsman.wire.problems import MEDIA_TYPE
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.api.world import World, a_world
from tests.databases import Backend

CLAIM = {"job_id": "JOB", "token": 1}
JOB = {
    "type": "demo",
    "payload": {"key": "text", "number": 1},
    "job_id": "j1",
    "idempotency_key": "k1",
    "agent": "ann",
    "pool": "default",
    "priority": 0,
    "tags": ["tag"],
    "run_at": "2030-01-01T00:00:00Z",
    "timeout_seconds": 10,
    "max_attempts": 3,
    "retry_base_seconds": 1,
    "retry_cap_seconds": 10,
}
DEVICE = {"index": 0, "uuid": "GPU-1", "name": "H200", "total_mb": 1, "used_mb": 1, "utilisation": 1}
REPORT = {
    "ready": True,
    "seen": True,
    "fault": "none",
    "vram_total_mb": 10,
    "vram_used_mb": 1,
    "vram_age_seconds": 1,
    "devices": [{**DEVICE, "processes": [[1, 2]]}],
}
HELD = {**CLAIM, "done": 0.5, "note": "half", "log_first": 0, "log_lines": ["line"]}
ASK = {"types": ["demo"], "most": {"demo": 2}, "beside": 0, "wait_seconds": 0}
ENDING = {**CLAIM, "outcome": "failed", "result": {"a": "b"}, "kind": "job_error", "error": "it broke"}
PEOPLE = {
    "/jobs/submit": JOB,
    "/jobs/submit/batch": {"jobs": [{"type": "demo"}, JOB]},
    "/jobs/JOB/retry": {"edit": True, "payload": {"a": ["b"]}},
    "/tokens": {"role": "submitter", "name": "ann", "agent": "ann", "expires_in_seconds": 60},
    "/workers/register": {
        "worker_id": "new",
        "pool": "default",
        "instance_type": "H200",
        "incarnation": "first-life",
    },
}
WORKERS = {
    "/jobs/claim": ASK,
    "/jobs/start": {"claims": [CLAIM]},
    "/jobs/finish": {"endings": [ENDING, {**ENDING, "outcome": "given_back"}], "then": ASK},
    "/workers/WORKER/heartbeat": {"holding": [HELD], "report": REPORT},
    "/jobs/JOB/progress": {"token": 1, "done": 0.5, "note": "half"},
    "/jobs/JOB/release": {"token": 1, "why": "leaving"},
    "/jobs/JOB/fail": {"token": 1, "kind": "job_error", "error": "it broke"},
    "/jobs/JOB/complete": {"token": 1, "result": {"a": "b"}},
}
ODD = (
    *('"\\u0000"', '"\\ud800"', '"a\\ud83d"', '"\\uffff\\u202e"', '"%s"' % ("x" * 70_000)),
    *('"\'; DROP TABLE job;--"', '"a\\r\\nb: c"', '"\\ud83d\\udc11"', '""'),
    *("1e400", "-1e400", "1e308", "5e-324", str(2**63), str(2**70), str(-(2**70)), "9" * 5_000, "-0.0"),
    *("null", "true", "[]", "{}", "[" * 10_000 + "]" * 10_000),
)
HOLE = "\u2603 here \u2603"


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """What cannot be kept differs between the databases."""
    fresh = backend.fresh()
    yield fresh
    backend.drop(fresh)


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.WORKER])
def test_an_odd_value_in_any_field_is_taken_or_refused(
    app: FastAPI, services: Services, tokens: Tokens, role: Role
) -> None:
    with Client(app) as client:
        for number, (path, body) in enumerate((WORKERS if role is Role.WORKER else PEOPLE).items()):
            world = a_world(services, tokens, role, number)
            for text in _spoilt(_aimed(body, world)):
                _check(client, path, text, world)


def _check(client: Client, path: str, text: str, world: World) -> None:
    target = path.replace("JOB", world.keys[0].job_id).replace("WORKER", world.worker_id)
    headers = {**world.headers, "content-type": "application/json"}
    answer = client.post(target, content=text.encode(), headers=headers)
    assert answer.status_code < 500, f"{target} {text[:300]}: {answer.text}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == MEDIA_TYPE


def _aimed(body: object, world: World) -> Any:
    """The same body about a claim that the worker holds."""
    text = json.dumps(body).replace('"JOB"', json.dumps(world.keys[0].job_id))
    return json.loads(text.replace('"token": 1', f'"token": {world.keys[0].token}'))


def _spoilt(body: Any) -> Iterator[str]:
    for holed in _holed(body):
        for odd in ODD:
            yield json.dumps(holed).replace(json.dumps(HOLE), odd)


def _holed(part: Any) -> Iterator[Any]:
    """The body with one of its values missing, for each of them; and each name of an object once as well."""
    match part:
        case dict():
            for key, value in part.items():
                yield from ({**part, key: inner} for inner in _holed(value))
        case list():
            for index, value in enumerate(part):
                yield from ([*part[:index], inner, *part[index + 1 :]] for inner in _holed(value))
        case _:
            yield HOLE
