"""A client of an app in this process: no socket, one event loop for all of its calls."""

import asyncio
from types import TracebackType
from typing import Any

import httpx
from fastapi import FastAPI

HERE = "http://127.0.0.1"


class Client:
    def __init__(self, app: FastAPI) -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("192.0.2.1", 50_000))
        self._client = httpx.AsyncClient(transport=transport, base_url=HERE)
        self._runner = asyncio.Runner()

    def request(self, method: str, path: str, **given: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **given))

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)

    def put(self, path: str, **given: Any) -> httpx.Response:
        return self.request("PUT", path, **given)

    def delete(self, path: str, **given: Any) -> httpx.Response:
        return self.request("DELETE", path, **given)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
