"""ComfyUI's API, one method per call. Everything may be asked again, except for a prompt.

One request, one answer, within limits. Whatever is not ComfyUI's own answer becomes an error that says so.

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
from urllib.parse import quote

import httpx

from herdsman import __version__
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.comfyui.shapes import as_object, as_text
from herdsman.errors import ServiceRejected, ServiceUnavailable, SubmissionUnknown
from herdsman.ports import Clock
from herdsman.text import one_line
from herdsman.web import NEVER_SENT, sent, whole

LARGEST_ANSWER = 64 * 1024 * 1024
CHUNK = 1024 * 1024
Unclear = type[ServiceUnavailable]

_TITLE = re.compile(r"<title[^>]*>([^<]{1,200})", re.IGNORECASE)
Version = tuple[int, int, int]
OLDEST: Version = (0, 3, 45)
"""The first that takes ids of our choice."""
INTERRUPTS_BY_ID: Version = (0, 3, 57)
"""Those before stop whatever runs."""
HAS_JOBS: Version = (0, 6, 0)
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


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


class Api:
    """Safe to share between threads. The headers go to ComfyUI's address, and nowhere else."""

    def __init__(self, options: ComfyUIOptions, clock: Clock) -> None:
        self._url = options.base_url
        self._timeout = options.timeout_s
        self._clock = clock
        self._client = httpx.Client(
            headers={"User-Agent": f"herdsman/{__version__}", **options.plain_headers()},
            timeout=self._timeout,
            # A kept connection may have been closed at the other end, and a job sent on it would be unclear.
            limits=httpx.Limits(max_keepalive_connections=0),
            # It is addressed directly, mostly on the same network: proxies for the outside world do not know it.
            trust_env=False,
        )
        self._version: Version | None = None

    def close(self) -> None:
        self._client.close()

    def version(self) -> Version:
        """Of the server that was there when it was last asked; (0, 0, 0) where it does not say."""
        if self._version is None:
            self._version = read_version(self.system_stats()) or (0, 0, 0)
        return self._version

    def forget_version(self) -> None:
        """It was away, or is not what it was: another one may come back."""
        self._version = None

    def system_stats(self) -> Mapping[str, object]:
        return self._get("/system_stats")

    def queue_remaining(self) -> int | None:
        left = as_object(self._get("/prompt").get("exec_info")).get("queue_remaining")
        return left if isinstance(left, int) else None

    def post_prompt(self, body: Mapping[str, object]) -> Answer:
        """With 200, 400 or 413. `SubmissionUnknown` where it may have been taken."""
        return self._ask("POST", "/prompt", body=body, also=(400, 413), unclear=SubmissionUnknown)

    def queue(self) -> Mapping[str, object]:
        return self._get("/queue")

    def history(self, prompt_id: str) -> Mapping[str, object]:
        return self._get(f"/history/{quote(prompt_id, safe='')}")

    def job(self, prompt_id: str) -> Mapping[str, object] | None:
        """None when there is no such job; `NotThere` when there is no such question."""
        answer = self._ask("GET", f"/api/jobs/{quote(prompt_id, safe='')}", also=(404,))
        if answer.status != 404:
            return answer.object()
        if b"Job not found" in answer.body:
            return None
        raise NotThere(answer.sentence())

    def delete_waiting(self, prompt_id: str) -> None:
        self._ask("POST", "/queue", body={"delete": [prompt_id]})

    def interrupt(self, prompt_id: str) -> None:
        # Without an id it would stop whatever runs.
        assert prompt_id
        self._ask("POST", "/interrupt", body={"prompt_id": prompt_id})

    def free(self, *, unload_models: bool) -> None:
        self._ask("POST", "/free", body={"unload_models": unload_models, "free_memory": True})

    def upload(self, name: str, content: IO[bytes]) -> str:
        """The name by which a workflow finds it: not always the one that was asked for."""
        files = {"image": (name, content, "application/octet-stream")}
        request = self._client.build_request("POST", f"{self._url}/upload/image", files=files)
        answer = self._answer(request, (400, 413), ServiceUnavailable)
        if answer.status in {400, 413}:
            raise ServiceRejected(f"ComfyUI did not take the file {name!r}: {answer.sentence()}")
        reply = answer.object()
        given, folder = as_text(reply.get("name")), as_text(reply.get("subfolder"))
        if not given:
            raise ServiceUnavailable(f"{answer.sentence()}, without the name of the file")
        return f"{folder}/{given}" if folder else given

    @contextmanager
    def view(self, params: Mapping[str, str]) -> Generator[tuple[int, Iterator[bytes]]]:
        """The status and the content, which ends with an error where it is shorter than was said.

        It may take its time, but not fall silent.
        """
        headers = {"Accept-Encoding": "identity"}
        request = self._client.build_request("GET", f"{self._url}/view", params=params, headers=headers)
        with self._translated(_asked(request), ServiceUnavailable), sent(self._client, request) as response:
            if not _is_its_own(response) and response.status_code not in (400, 404):
                raise self._refusal(self._read(_asked(request), response), ServiceUnavailable)
            yield response.status_code, response.iter_bytes(CHUNK)

    def _get(self, path: str) -> Mapping[str, object]:
        return self._ask("GET", path).object()

    def _ask(
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
            raise unclear(f"ComfyUI at {self._url} did not answer {asked} within {self._timeout:g} s") from error
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


def read_version(stats: Mapping[str, object]) -> Version | None:
    text = as_text(as_object(stats.get("system")).get("comfyui_version")) or ""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
