"""One request, one answer, within limits. Whatever is not ComfyUI's own answer becomes an error that says so.

no connection                    ServiceUnavailable, nothing was sent
cut, timed out, 5xx, no JSON     *unclear*: ServiceUnavailable, or SubmissionUnknown where a job was sent
429, 503                         ServiceUnavailable, nothing was taken
401, 403                         NotAllowed: a proxy in front wants to know who we are
404                              NotThere
"""

import json
import re
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

import httpx

from herdsman import __version__
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_object, one_line
from herdsman.core.errors import ServiceUnavailable
from herdsman.ports import Clock
from herdsman.web import NEVER_SENT, sent, whole

LARGEST_ANSWER = 64 * 1024 * 1024
CHUNK = 1024 * 1024
Unclear = type[ServiceUnavailable]

_TITLE = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)


class NotAllowed(ServiceUnavailable):
    """Something in front of ComfyUI did not let us pass."""


class NotThere(ServiceUnavailable):
    """There is no such path."""


@dataclass(frozen=True, slots=True)
class Answer:
    asked: str
    status: int
    headers: httpx.Headers
    body: bytes

    def object(self, unclear: Unclear = ServiceUnavailable) -> Mapping[str, object]:
        try:
            read: object = json.loads(self.body)
        except (ValueError, RecursionError):
            raise unclear(f"{self.sentence()}, which is no JSON") from None
        if not isinstance(read, dict):
            raise unclear(f"{self.sentence()}, which is no object")
        return as_object(cast("object", read))

    def sentence(self) -> str:
        text = self.body[:4096].decode(errors="replace")
        title = _TITLE.search(text)
        said = f"a page titled {title[1]!r}" if title else repr(one_line(text, 200))
        return f"{self.asked} was answered with {self.status} and {said}"


class Wire:
    """Safe to share between threads. The headers go to ComfyUI's address, and nowhere else."""

    def __init__(
        self, options: ComfyUIOptions, clock: Clock, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url = options.base_url
        self._timeout = options.timeout_s
        self._clock = clock
        self._client = httpx.Client(
            headers={"User-Agent": f"herdsman/{__version__}", **options.plain_headers()},
            timeout=self._timeout,
            # A kept connection may have been closed at the other end, and a job sent on it would be unclear.
            limits=httpx.Limits(max_keepalive_connections=0),
            # It is addressed directly, mostly next door: proxies for the outside world do not know it.
            trust_env=False,
            transport=transport,
        )

    def close(self) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        also: Collection[int] = (),
        unclear: Unclear = ServiceUnavailable,
    ) -> Answer:
        """An answer of ComfyUI with a status of success, or one of `also`."""
        return self._answer(self._client.build_request(method, self._url + path, json=body), also, unclear)

    def send_file(self, path: str, name: str, content: IO[bytes], also: Collection[int] = ()) -> Answer:
        files = {"image": (name, content, "application/octet-stream")}
        request = self._client.build_request("POST", self._url + path, files=files)
        return self._answer(request, also, ServiceUnavailable)

    @contextmanager
    def stream(
        self, path: str, params: Mapping[str, str], also: Collection[int]
    ) -> Generator[httpx.Response]:
        """An answer whose body is still to come; it may take its time, but not fall silent."""
        headers = {"Accept-Encoding": "identity"}
        request = self._client.build_request("GET", self._url + path, params=params, headers=headers)
        with self._translated(_asked(request), ServiceUnavailable), sent(self._client, request) as response:
            if not _is_its_own(response) and response.status_code not in also:
                raise self._refusal(self._read(_asked(request), response), ServiceUnavailable)
            yield response

    def _answer(self, request: httpx.Request, also: Collection[int], unclear: Unclear) -> Answer:
        asked = _asked(request)
        with self._translated(asked, unclear), sent(self._client, request) as response:
            answer = self._read(asked, response)
        if _is_its_own(response) or answer.status in also:
            return answer
        raise self._refusal(answer, unclear)

    def _read(self, asked: str, response: httpx.Response) -> Answer:
        body = whole(response, self._clock, seconds=self._timeout, largest=LARGEST_ANSWER)
        return Answer(asked, response.status_code, response.headers, body)

    @contextmanager
    def _translated(self, asked: str, unclear: Unclear) -> Generator[None]:
        try:
            yield
        except NEVER_SENT as error:
            raise ServiceUnavailable(
                f"ComfyUI could not be reached at {self._url}: {error}; is it running there?"
            ) from error
        except httpx.TimeoutException as error:
            raise unclear(
                f"ComfyUI at {self._url} did not answer {asked} within {self._timeout:g} s"
            ) from error
        except httpx.HTTPError as error:
            # Only its kind, and not as the cause: the text of a protocol error repeats what was sent.
            kind = type(error).__name__
            raise unclear(f"ComfyUI at {self._url} did not answer {asked} to the end: {kind}") from None

    def _refusal(self, answer: Answer, unclear: Unclear) -> ServiceUnavailable:
        said = f"at {self._url}, {answer.sentence()}"
        match answer.status:
            case 401 | 403:
                return NotAllowed(f"{said}; the option headers must hold what the proxy in front asks for")
            case 404:
                return NotThere(f"{said}; the option url must lead to a ComfyUI")
            case 429 | 503:
                wait = one_line(answer.headers.get("retry-after", "later"), 40)
                return ServiceUnavailable(f"{said}; ask again after: {wait}")
            case status if 300 <= status < 500:
                return ServiceUnavailable(f"{said}; the option url must lead to a ComfyUI")
            case _:
                return unclear(said)


def _is_its_own(response: httpx.Response) -> bool:
    """ComfyUI's API never speaks HTML: a page is a proxy's, whatever its status."""
    return response.is_success and not response.headers.get("content-type", "").startswith("text/html")


def _asked(request: httpx.Request) -> str:
    return f"{request.method} {request.url.path}"


def pieces(response: httpx.Response) -> Iterator[bytes]:
    return response.iter_bytes(CHUNK)
