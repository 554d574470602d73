"""Calls that nobody thought of, made from the description of the API; half of them name things that exist."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import CheckContext, GenerationMode, Response
from schemathesis import checks as general
from schemathesis.specs.openapi import checks as promised

from herdsman.wire import MEDIA_TYPE, Problem
from tests.api.calling import HERE
from tests.api.world import World

PATIENCE = 60.0
STREAM_S = 0.1
"""A stream of events has no end of its own."""
WAIT_S = 0.01
_UNHURRIED = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)

# Their classes are generic over things that are not typed.
Operation = Any
Case = Any


def is_problem(_context: CheckContext, response: Response, _case: Case) -> None:
    """Every refusal is a problem in JSON that says its own status."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == [MEDIA_TYPE], f"{response.status_code} is no problem"
    told = Problem.model_validate_json(response.content)
    assert told.status == response.status_code
    assert told.type.startswith("urn:herdsman:")
    assert told.detail


_GENERAL: Any = general
_PROMISES: Any = promised
CHECKS: list[Any] = [
    _GENERAL.not_a_server_error,
    _PROMISES.status_code_conformance,
    _PROMISES.content_type_conformance,
    _PROMISES.response_headers_conformance,
    _PROMISES.response_schema_conformance,
    is_problem,
]


_DESCRIBED: list[str] = []


@dataclass
class Fuzz:
    app: FastAPI
    answers: Counter[int] = field(default_factory=Counter[int])

    def __post_init__(self) -> None:
        # To describe all routes takes a second, and all apps are described alike.
        if not _DESCRIBED:
            _DESCRIBED.append(_without_tokens(self.app.openapi()))
        schema: Any = schemathesis.openapi.from_dict(json.loads(_DESCRIBED[0]))
        schema.app = self.app
        self.operations: list[Operation] = [found.ok() for found in schema.get_all_operations()]

    @property
    def calls(self) -> int:
        return self.answers.total()

    def run(self, operation: Operation, world: World, *, count: int, number: int) -> None:
        """`number` is the seed: the same number makes the same calls."""

        @seed(number)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=_UNHURRIED,
        )
        @given(case=_cases(operation), pick=st.sampled_from([None] * len(world.keys) + [*world.keys]))
        def call(case: Case, pick: Any) -> None:
            if pick is not None:
                _aim(case, world, pick.job_id, pick.token)
            self._call(case, world)

        cast("Callable[[], None]", call)()

    def _call(self, case: Case, world: World) -> None:
        _hurry(case.body)
        wait = STREAM_S if case.operation.path == "/events" else PATIENCE
        answer = case.call(base_url=HERE, headers=world.headers, timeout=wait)
        self.answers[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)


def _without_tokens(shown: dict[str, Any]) -> str:
    """Else tokens would be made up, and the right one left out."""
    copy: dict[str, Any] = json.loads(json.dumps(shown))
    for operations in copy["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return json.dumps(copy)


def _cases(operation: Operation) -> st.SearchStrategy[Case]:
    """What the description allows, and what it does not."""
    kinds = [operation.as_strategy(mode) for mode in GenerationMode]
    return st.one_of(*kinds)


def _aim(case: Case, world: World, job_id: str, token: int) -> None:
    real = {"job_id": job_id, "worker_id": world.worker_id, "token_id": world.token_id}
    if case.path_parameters:
        case.path_parameters = {name: real.get(name, value) for name, value in case.path_parameters.items()}
    if case.query and "token" in case.query:
        case.query = {**case.query, "token": token}
    for part in _claims(case.body):
        part["token"] = token
        if "job_id" in part:
            part["job_id"] = job_id


def _claims(body: object) -> Iterator[dict[str, Any]]:
    """The parts of a body that speak of a claim."""
    if not isinstance(body, dict):
        return
    parts = cast("dict[str, Any]", body)
    if "token" in parts:
        yield parts
    for inner in parts.values():
        for each in cast("list[object]", inner) if isinstance(inner, list) else []:
            yield from _claims(each)


def _hurry(body: object) -> None:
    """Nobody waits for work here."""
    if not isinstance(body, dict):
        return
    parts = cast("dict[str, Any]", body)
    if isinstance(parts.get("wait_seconds"), int | float):
        parts["wait_seconds"] = min(parts["wait_seconds"], WAIT_S)
    _hurry(parts.get("then"))
