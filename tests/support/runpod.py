"""A provider at a fake Runpod, with every word between them kept, and held against the published specification."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import httpx
from jsonschema import Draft202012Validator
from pydantic import SecretStr

from herdsman.fleet.model import SpawnRequest
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.ports import Clock, SystemClock
from herdsman.providers.registry import Naming
from herdsman.providers.runpod import RunpodOptions, RunpodProvider
from herdsman.testing.fakes.runpod import FakeRunpod

KEY = "rpa_test_key_0123456789abcdef"
L4, A40, H100 = "NVIDIA L4", "NVIDIA A40", "NVIDIA H100 80GB HBM3"
NAMING = Naming("gpu", "test")
SILENCE = timedelta(seconds=0.3)

# It belongs to Runpod, so it is not part of this repository; where it lies beside it, it is used.
SPECIFICATION = Path(__file__).resolve().parents[3] / "shared" / "runpod" / "openapi-v2.json"
# What the live API takes and this copy of its specification does not know yet.
NEWER_FIELDS = {"cmd", "entrypoint"}
NEWER_GPU_FIELDS = {"minRamPerGpu", "minVcpuCountPerGpu"}
NEWER_PARAMETERS = {"limit", "cursor"}


def some_options(**wanted: Any) -> RunpodOptions:
    given: dict[str, Any] = {
        "api_key": SecretStr(KEY),
        "deployment": NAMING.deployment,
        "gpu_types": (L4,),
        "image": "herdsman/worker:1",
        "container_disk_gb": 20,
        "timeout": timedelta(seconds=5),
    }
    return RunpodOptions(**{**given, **wanted})


def a_provider(
    fake: FakeRunpod,
    *,
    clock: Clock | None = None,
    transport: httpx.BaseTransport | None = None,
    **wanted: Any,
) -> RunpodProvider:
    options = some_options(**{"api_url": fake.url, **wanted})
    return RunpodProvider(
        options, clock or SystemClock(), log_silence=SILENCE, transport=transport or httpx.HTTPTransport()
    )


def a_request(name: str | None = None, **environment: str) -> SpawnRequest:
    chosen = name or NAMING.name(uuid4().hex)
    return SpawnRequest(name=chosen, worker_id=WorkerId(chosen), pool=DEFAULT_POOL, environment=environment)


@dataclass(frozen=True)
class Exchange:
    method: str
    path: str
    query: Mapping[str, str]
    sent: object
    status: int
    kind: str
    request_id: str
    received: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path} -> {self.status}"


class Recording(httpx.BaseTransport):
    """Passes everything on, and keeps a copy; a stream of events is passed on as it comes."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._inner.handle_request(request)
        if response.headers.get("content-type") == "text/event-stream":
            self._keep(request, response, b"")
            return response
        body = response.read()
        self._keep(request, response, body)
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    def close(self) -> None:
        self._inner.close()

    def _keep(self, request: httpx.Request, response: httpx.Response, body: bytes) -> None:
        sent = request.read()
        self.exchanges.append(
            Exchange(
                method=request.method.lower(),
                path=request.url.path,
                query=dict(request.url.params),
                sent=json.loads(sent) if sent else None,
                status=response.status_code,
                kind=response.headers.get("content-type", "").partition(";")[0],
                request_id=response.headers.get("x-request-id", ""),
                received=body,
            )
        )


def deviations(exchange: Exchange) -> Iterator[str]:
    """What the specification does not allow about an exchange."""
    template, operation = _operation(exchange)
    known = {_resolved(each)["name"] for each in operation.get("parameters", [])} | NEWER_PARAMETERS
    yield from (f"{exchange}: unknown parameter {name}" for name in set(exchange.query) - known)
    if exchange.sent is not None:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        yield from _complaints(_without_newer_fields(exchange.sent), schema, f"request of {exchange}")
    responses = operation["responses"]
    response = _resolved(responses.get(str(exchange.status)) or responses["default"])
    content = response.get("content", {})
    if exchange.kind == "text/event-stream" or (not content and not exchange.received):
        return
    if exchange.kind not in content:
        yield f"{exchange}: {exchange.kind} is not among {list(content)} of {template}"
        return
    schema = content[exchange.kind]["schema"]
    yield from _complaints(json.loads(exchange.received), schema, f"response of {exchange}")


@cache
def _specification() -> dict[str, Any]:
    return json.loads(SPECIFICATION.read_text())


def _operation(exchange: Exchange) -> tuple[str, dict[str, Any]]:
    parts = exchange.path.split("/")
    for template, methods in _specification()["paths"].items():
        pattern = template.split("/")
        fits = len(pattern) == len(parts) and all(
            want == part or want.startswith("{") for want, part in zip(pattern, parts, strict=True)
        )
        if fits and exchange.method in methods:
            return template, methods[exchange.method]
    raise AssertionError(f"{exchange} is not a call of this API")


def _resolved(value: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = _specification()
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def _complaints(value: object, schema: dict[str, Any], where: str) -> Iterator[str]:
    together = {**schema, "components": _specification()["components"]}
    validator = cast("Any", Draft202012Validator(together))
    for error in validator.iter_errors(value):
        yield f"{where}: {error.json_path}: {error.message}"


def _without_newer_fields(sent: object) -> object:
    fields = dict(cast("dict[str, Any]", sent))
    if "gpu" in fields:
        fields["gpu"] = {key: value for key, value in fields["gpu"].items() if key not in NEWER_GPU_FIELDS}
    return {key: value for key, value in fields.items() if key not in NEWER_FIELDS}
