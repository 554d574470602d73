"""A3: in no field of any body does a value that a database cannot keep become more than a clear no."""

import json
from collections.abc import Iterator
from itertools import count
from typing import cast

import httpx
import pytest
from fastapi import FastAPI

from herdsman.access.rules import Role
from herdsman.context import Services
from herdsman.wire import MEDIA_TYPE
from tests.api.calling import Client
from tests.api.conftest import Tokens
from tests.api.world import HELD as HELD_JOBS
from tests.api.world import World, a_world
from tests.support.amounts import SOAK
from tests.support.databases import Backend

CLAIM = {"job_id": "JOB", "token": 1}
JOB = {
    "type": "demo",
    "payload": {"key": "text", "number": 1},
    "agent": "ann",
    "pool": "default",
    "priority": 0,
    "tags": ["tag"],
    "run_at": "2020-01-01T00:00:00Z",
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
ENDING = {
    **CLAIM,
    "outcome": "failed",
    "result": {"a": "b"},
    "kind": "job_error",
    "error": "it broke",
    "saved_seconds": 1.5,
}
PEOPLE = {
    "/jobs/submit": JOB,
    "/jobs/submit/batch": {"jobs": [{"type": "demo"}, {**JOB, "job_id": "j1", "idempotency_key": "k1"}]},
    "/jobs/ENDED/retry": {"edit": True, "payload": {"a": ["b"]}},
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
    "/jobs/JOB/release": {"token": 1, "reason": "leaving"},
    "/jobs/JOB/fail": {"token": 1, "kind": "job_error", "error": "it broke"},
    "/jobs/JOB/complete": {"token": 1, "result": {"a": "b"}, "saved_seconds": 1.5},
    "/jobs/JOB/service": {"token": 1, "external_id": "p-1", "status": "submitted"},
}
ODD = (
    *('"\\u0000"', '"\\ud800"', '"a\\ud83d"', '"\\uffff\\u202e"', '"%s"' % ("x" * 70_000)),
    *('"\'; DROP TABLE job;--"', '"a\\r\\nb: c"', '"\\ud83d\\udc11"', '""'),
    *("1e400", "-1e400", "1e308", "5e-324", str(2**63), str(2**70), str(-(2**70)), "9" * 5_000, "-0.0"),
    *("null", "true", "[]", "{}", "[" * 10_000 + "]" * 10_000),
)
ENDS = ("/finish", "/release", "/fail", "/complete", "/retry")
PUTS = ("/service",)
HOLE = "\u2603 here \u2603"


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """What cannot be kept differs between the databases."""
    fresh = backend.fresh()
    yield fresh
    backend.drop(fresh)


@pytest.mark.parametrize("role", [Role.ADMIN, Role.WORKER])
def test_an_odd_value_in_any_field_is_taken_or_refused(
    app: FastAPI, services: Services, tokens: Tokens, role: Role
) -> None:
    numbers = count()
    with Client(app) as client:
        for path, body in (WORKERS if role is Role.WORKER else PEOPLE).items():
            world = a_world(services, tokens, role, next(numbers))
            for text in _spoilt(body):
                answer = _told(client, path, text, world)
                assert answer.status_code < 500, f"{path} {text[:300]}: {answer.text}"
                if answer.status_code >= 400:
                    assert answer.headers["content-type"] == MEDIA_TYPE
                elif path.endswith(ENDS):
                    world = a_world(services, tokens, role, next(numbers))


def _told(client: Client, path: str, text: str, world: World) -> httpx.Response:
    """About a claim that the worker holds."""
    held = world.keys[0]
    about = text.replace('"JOB"', json.dumps(held.job_id)).replace('"token": 1', f'"token": {held.token}')
    ended = world.keys[HELD_JOBS].job_id
    target = path.replace("JOB", held.job_id).replace("ENDED", ended).replace("WORKER", world.worker_id)
    headers = {**world.headers, "content-type": "application/json"}
    method = "PUT" if path.endswith(PUTS) else "POST"
    return client.request(method, target, content=about.encode(), headers=headers)


def _spoilt(body: object) -> Iterator[str]:
    """In `make test` each field gets half of the values, and its neighbour the other half."""
    for field, holed in enumerate(_holed(body)):
        for number, odd in enumerate(ODD):
            if SOAK or (field + number) % 2 == 0:
                yield json.dumps(holed).replace(json.dumps(HOLE), odd)


def _holed(part: object) -> Iterator[object]:
    """The body without one of its values, for each of them."""
    if isinstance(part, dict):
        parts = cast("dict[str, object]", part)
        for key, value in parts.items():
            yield from ({**parts, key: inner} for inner in _holed(value))
    elif isinstance(part, list):
        each = cast("list[object]", part)
        for index, value in enumerate(each):
            yield from ([*each[:index], inner, *each[index + 1 :]] for inner in _holed(value))
    else:
        yield HOLE
