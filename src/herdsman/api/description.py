"""The description for programs: what FastAPI knows of the routes, and with what any of them may refuse."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from herdsman.api.access import OPEN
from herdsman.wire.problems import MEDIA_TYPE, Problem

REFUSALS: dict[int, str] = {
    401: "No good token came.",
    403: "The token is good, but not for this.",
    404: "There is no such thing, or it is not yours.",
    408: "The body did not arrive in time.",
    409: "It does not fit what is there: `type` says how.",
    413: "The body is too large.",
    415: "The body is not plain JSON.",
    421: "The server is not called by that name.",
    422: "Something in the request is not as it must be: `detail` says what.",
    429: "A limit is reached, `code` says which: wait as long as `Retry-After` says.",
    431: "The headers are too many, or too large.",
    503: "The database is away, or no more is taken in from anybody now: send it again later.",
}
"""One line for each status, shared by all routes."""

_PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}
_BEARER = "token"


class Described(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _complete(super().openapi())
        assert self.openapi_schema is not None
        return self.openapi_schema


def _complete(shown: dict[str, Any]) -> None:
    parts = shown["components"]
    parts["schemas"]["Problem"] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(unused, None)
    parts["responses"] = {
        str(status): {"description": said, "content": {MEDIA_TYPE: _PROBLEM}}
        for status, said in REFUSALS.items()
    }
    parts["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
    for path, operations in shown["paths"].items():
        for method, operation in operations.items():
            _complete_operation(path, method, operation)


def _complete_operation(path: str, method: str, operation: dict[str, Any]) -> None:
    if not _open(path, method):
        operation["security"] = [{_BEARER: []}]
    answers = operation["responses"]
    answers.pop("422", None)  # FastAPI's own, which is not the one that is sent
    for status in map(str, sorted(_statuses(path, method))):
        answers.setdefault(status, {"$ref": f"#/components/responses/{status}"})
    for status, answer in answers.items():
        if status >= "400" and "$ref" not in answer:
            answer.setdefault("content", {})[MEDIA_TYPE] = _PROBLEM


def _statuses(path: str, method: str) -> Iterator[int]:
    yield from (408, 413, 415, 421, 422, 431)
    if not _open(path, method):
        yield from (401, 403, 429, 503)
    if method != "get" or "{" in path:
        yield from (404, 409)


def _open(path: str, method: str) -> bool:
    return (method.upper(), path) in OPEN
