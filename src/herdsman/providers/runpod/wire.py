"""One request, one answer, within limits. What the network does becomes an error that says who must act."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import httpx
from pydantic import SecretStr

from herdsman import __version__
from herdsman.core.errors import ProviderUnavailable
from herdsman.ports import Clock
from herdsman.providers.runpod.answers import Answer
from herdsman.providers.runpod.errors import refusal
from herdsman.web import NEVER_SENT, sent, whole

LARGEST_ANSWER = 32 * 1024 * 1024
LARGEST_STREAM = 4 * 1024 * 1024


class Wire:
    """Safe to share between threads. The key goes into one header, and nowhere else."""

    def __init__(
        self,
        *,
        url: str,
        key: SecretStr,
        timeout: timedelta,
        clock: Clock,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._key = key
        self._timeout = timeout.total_seconds()
        self._clock = clock
        self._client = httpx.Client(
            base_url=url,
            headers={
                "Authorization": f"Bearer {key.get_secret_value()}",
                "User-Agent": f"herdsman/{__version__}",
            },
            timeout=self._timeout,
            # A kept connection may have been closed at the other end, and a create on it would be unclear.
            limits=httpx.Limits(max_keepalive_connections=0),
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
        params: Mapping[str, str] | None = None,
        unclear: type[ProviderUnavailable] = ProviderUnavailable,
        secrets: Sequence[str] = (),
    ) -> Answer:
        """The answer to a call that succeeded. `secrets` are values in the body that no error may repeat."""
        request = self._client.build_request(method, path, json=body, params=params)
        asked = f"{method} {path}"
        with _translated(asked, unclear), sent(self._client, request) as response:
            answer = self._read(asked, response)
        if not response.is_success:
            raise refusal(answer, unclear=unclear, secrets=(*secrets, self._key.get_secret_value()))
        return answer

    @contextmanager
    def stream(self, path: str, params: Mapping[str, str], *, silence: timedelta) -> Generator[Iterator[str]]:
        """What comes down an endless stream, until it is silent or has said too much."""
        timeout = httpx.Timeout(self._timeout, read=silence.total_seconds())
        request = self._client.build_request("GET", path, params=params, timeout=timeout)
        asked = f"GET {path}"
        with _translated(asked, ProviderUnavailable), sent(self._client, request) as response:
            if not response.is_success:
                answer = self._read(asked, response)
                raise refusal(answer, unclear=ProviderUnavailable, secrets=(self._key.get_secret_value(),))
            yield self._until_silent(response, 3 * silence)

    def _read(self, asked: str, response: httpx.Response) -> Answer:
        body = whole(response, self._clock, seconds=self._timeout, largest=LARGEST_ANSWER)
        return Answer(asked, response.status_code, response.headers, body)

    def _until_silent(self, response: httpx.Response, at_most: timedelta) -> Iterator[str]:
        """One that is never silent is left all the same."""
        deadline = self._clock.monotonic() + at_most.total_seconds()
        size = 0
        try:
            for chunk in response.iter_text():
                yield chunk
                size += len(chunk)
                if size > LARGEST_STREAM or self._clock.monotonic() > deadline:
                    return
        except httpx.TransportError:
            return


@contextmanager
def _translated(asked: str, unclear: type[ProviderUnavailable]) -> Generator[None]:
    try:
        yield
    except NEVER_SENT as error:
        raise ProviderUnavailable(f"runpod could not be reached for {asked}: {error}") from error
    except httpx.HTTPError as error:
        # Only its kind, and not as the cause: the text of a protocol error repeats what was sent or received.
        raise unclear(f"runpod did not answer {asked} to the end: {type(error).__name__}") from None
