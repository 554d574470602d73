"""Pods as instances: how one is asked for, found again and ended."""

import json
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

import httpx
import structlog
from pydantic import SecretStr

from herdsman import __version__
from herdsman.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable, SpawnUnknown
from herdsman.fleet.model import Instance, InstanceRef, InstanceState, SpawnRequest
from herdsman.ports import Clock
from herdsman.providers.runpod.answers import (
    Answer,
    GpuType,
    NotAllowed,
    NotThere,
    Pod,
    Unreadable,
    Volume,
    as_object,
    read_gpu_types,
    read_page,
    read_pod,
    read_spent,
    read_volumes,
    refusal,
)
from herdsman.providers.runpod.options import SSH_PORT, RunpodOptions, pod_environment
from herdsman.providers.runpod.placement import Stock, candidates, chosen, create_body
from herdsman.web import NEVER_SENT, sent, whole

LONGEST_LINE = 4096
LARGEST_EVENT = 1024 * 1024
LARGEST_ANSWER = 32 * 1024 * 1024
LARGEST_STREAM = 4 * 1024 * 1024
PAGE = 1000
MOST_PAGES = 100
MOST_LOG_LINES = 5000
LOG_SILENCE = timedelta(seconds=2)
T = TypeVar("T")
# An empty id, or one that is a path, would make the call mean something else.
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
log = structlog.get_logger()

# An account is allowed so many calls a minute; one spawn must leave some for the others.
MOST_TRIES = 20

LARGEST_VOLUME_GB = 4096
SEEN_WITHIN = 1.1
"""A volume that is so many times as large as its pods see it was grown, and they do not see that yet."""
SHARED_BEYOND = 2.0
"""Pods that see so many times the volume see the disks of others too."""

_STATES: Mapping[str, InstanceState] = MappingProxyType(
    {
        "PROVISIONING": InstanceState.STARTING,
        "STARTING": InstanceState.STARTING,
        "RUNNING": InstanceState.RUNNING,
        "EXITED": InstanceState.STOPPED,
        "ERROR": InstanceState.BROKEN,
    }
)


class RunpodProvider:
    def __init__(
        self,
        options: RunpodOptions,
        clock: Clock,
        *,
        pools: Mapping[str, RunpodOptions] | None = None,
        log_silence: timedelta = LOG_SILENCE,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.options = options
        self._pools = pools or {}
        self._naming = options.naming
        self._stock = Stock(clock)
        self._volumes: tuple[Volume, ...] | None = None
        wire = Wire(
            url=options.api_url,
            key=options.api_key,
            timeout=options.timeout,
            clock=clock,
            transport=transport,
        )
        self.api = RunpodApi(wire, log_silence=log_silence)

    @property
    def name(self) -> str:
        return "runpod"

    def close(self) -> None:
        self.api.close()

    def spawn(self, request: SpawnRequest) -> Instance:
        """Candidates are tried in turn; only a refusal of one, which started nothing, leads to the next."""
        if not self._naming.owns(request.name):
            raise ProviderRejected(f"{request.name!r} is not a name that this deployment would know again")
        options = self._pools.get(request.pool, self.options)
        environment = pod_environment(request.environment, options.environment, options.api_key)
        ladder = self._stock.in_order(candidates(options, self._known_volumes(options)))[:MOST_TRIES]
        refusals: list[CapacityUnavailable | NotAllowed] = []
        for candidate in ladder:
            try:
                body = create_body(options, candidate, name=request.name, environment=environment)
                pod = self.api.create_pod(body, secrets=tuple(environment.values()))
            except (CapacityUnavailable, NotAllowed) as refused:
                if isinstance(refused, CapacityUnavailable):
                    self._stock.ran_out(candidate)
                log.info("runpod.candidate_refused", candidate=str(candidate), reason=str(refused))
                refusals.append(refused)
                continue
            if pod.name != request.name:
                text = f"runpod was asked for {request.name} and started pod {pod.id} under another name"
                raise SpawnUnknown(text)
            return self._instance(pod)
        # The last refusal is shown too: Runpod tells a wrong request from empty shelves in its words only.
        if all(isinstance(refused, NotAllowed) for refused in refusals):
            raise ProviderRejected(str(refusals[-1]))
        tried = ", ".join(str(candidate) for candidate in ladder)
        raise CapacityUnavailable(f"runpod has none of: {tried}; at last: {refusals[-1]}")

    def find(self, ref: InstanceRef) -> Instance | None:
        pod = self.api.get_pod(ref)
        return None if pod is None or pod.gone else self._instance(pod)

    def terminate(self, ref: InstanceRef) -> None:
        self.api.delete_pod(ref)

    def list_instances(self) -> Sequence[Instance]:
        ours = [pod for pod in self.api.list_pods() if self._naming.owns(pod.name)]
        return [self._instance(pod) for pod in ours if not pod.gone]

    def grow_volume(self, ref: InstanceRef, *, seen_gb: float, by_gb: int) -> str:
        """By its size at Runpod, so that asking twice grows it once: it is left alone until its pods see that size."""
        pod = self.api.get_pod(ref)
        volume_id = None if pod is None else pod.volume_id
        volume = next((each for each in self.api.list_volumes() if each.id == volume_id), None)
        if volume is None:
            raise ProviderRejected(f"pod {ref} has no network volume of this Runpod account to grow")
        if volume.size_gb > SEEN_WITHIN * seen_gb:
            return f"volume {volume.name} has {volume.size_gb} GB already, its pods see {seen_gb:.0f}"
        if seen_gb > volume.size_gb * SHARED_BEYOND:
            return f"pods see {seen_gb:.0f} GB where volume {volume.name} has {volume.size_gb}: it is not judged by that"
        size = min(volume.size_gb + by_gb, LARGEST_VOLUME_GB)
        if size == volume.size_gb:
            raise ProviderRejected(
                f"volume {volume.name} has {size} GB, the most that Runpod gives: make room on it"
            )
        self.api.resize_volume(volume.id, size)
        return f"volume {volume.name} has {size} GB now"

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        return self.api.tail_logs(ref, lines)

    def _known_volumes(self, options: RunpodOptions) -> tuple[Volume, ...]:
        """Asked for once: the id and the place of a volume never change."""
        if not options.volumes:
            return ()
        there = self._volumes if self._volumes is not None else self.api.list_volumes()
        found = chosen(options.volumes, there)
        self._volumes = there  # kept only when it had all: what is missing may be made meanwhile
        return found

    def _instance(self, pod: Pod) -> Instance:
        state = _STATES.get(pod.status, InstanceState.UNKNOWN)
        if state is InstanceState.RUNNING and SSH_PORT in self.options.ports and not pod.ssh_ready:
            state = InstanceState.STARTING
        return Instance(
            ref=InstanceRef(pod.id),
            name=pod.name,
            state=state,
            gpu_type=pod.gpu_type,
            gpu_count=pod.gpu_count,
            cost_per_hour=pod.cost_per_hour,
            created_at=pod.created_at,
        )


def log_lines(chunks: Iterable[str]) -> Iterator[str]:
    """The `line` of each event; what is no event of that kind is skipped."""
    for line in _lines(chunks):
        field, _, value = line.partition(":")
        if field != "data":
            continue
        try:
            event = as_object(json.loads(value))
        except (ValueError, RecursionError):
            continue
        text = event.get("line") if event is not None else None
        if isinstance(text, str):
            yield text[:LONGEST_LINE]


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    begun: list[str] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split("\n")
        for number, part in enumerate((first, *others)):
            if number:
                if size <= LARGEST_EVENT:
                    yield "".join(begun).removesuffix("\r")
                begun, size = [], 0
            size += len(part)
            if size <= LARGEST_EVENT:  # the rest of a longer one is left out
                begun.append(part)


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


class RunpodApi:
    def __init__(self, wire: Wire, *, log_silence: timedelta = LOG_SILENCE) -> None:
        self._wire = wire
        self._log_silence = log_silence

    def close(self) -> None:
        self._wire.close()

    def create_pod(self, body: Mapping[str, object], *, secrets: Sequence[str] = ()) -> Pod:
        answer = self._wire.ask("POST", "/pods", body=body, unclear=SpawnUnknown, secrets=secrets)
        return _understood(answer, read_pod, unclear=SpawnUnknown)

    def list_pods(self) -> list[Pod]:
        """All of them, page by page. A page that is missing or broken makes the whole an error."""
        found: dict[str, Pod] = {}
        for pods in self._pages():
            # A pod that is created meanwhile pushes others onto the next page, where they come again.
            found.update({pod.id: pod for pod in pods})
        return list(found.values())

    def get_pod(self, pod_id: str) -> Pod | None:
        try:
            answer = self._wire.ask("GET", _path(pod_id))
        except NotThere:
            return None
        return _understood(answer, read_pod)

    def delete_pod(self, pod_id: str) -> None:
        """Also succeeds where there is no such pod any more."""
        with suppress(NotThere):
            self._wire.ask("DELETE", _path(pod_id))

    def list_volumes(self) -> tuple[Volume, ...]:
        return _understood(self._wire.ask("GET", "/network-volumes"), read_volumes)

    def resize_volume(self, volume_id: str, size_gb: int) -> None:
        if not _ID.fullmatch(volume_id):
            raise ProviderRejected(f"{volume_id[:100]!r} is not the id of a volume")
        self._wire.ask("PATCH", f"/network-volumes/{volume_id}", body={"size": size_gb})

    def list_gpu_types(self, cloud: str) -> tuple[GpuType, ...]:
        """What there is to rent, and whether some are left now: a hint, and no promise."""
        params = {"include": "AVAILABILITY", "product": "POD", "count": "1", "cloud": cloud}
        answer = self._wire.ask("GET", "/catalog/gpus", params=params)
        return _understood(answer, partial(read_gpu_types, cloud=cloud))

    def spent_lately(self) -> Decimal:
        """USD of the last day; it lags behind by about an hour."""
        params = {"bucketSize": "hour", "lastN": "24"}
        return _understood(self._wire.ask("GET", "/billing/pods", params=params), read_spent)

    def tail_logs(self, pod_id: str, lines: int) -> list[str]:
        """The last lines. The stream stays open for more, so it is left once they are here, or it is silent."""
        wanted = min(lines, MOST_LOG_LINES)
        if wanted <= 0:
            return []
        path, params = f"{_path(pod_id)}/logs", {"tail": str(wanted)}
        try:
            with self._wire.stream(path, params, silence=self._log_silence) as chunks:
                return list(islice(log_lines(chunks), wanted))
        except NotThere:
            return []

    def _pages(self) -> Iterator[tuple[Pod, ...]]:
        seen: set[str | None] = set()
        cursor: str | None = None
        while len(seen) < MOST_PAGES and cursor not in seen:
            seen.add(cursor)
            params = {"limit": str(PAGE)} | ({} if cursor is None else {"cursor": cursor})
            page = _understood(self._wire.ask("GET", "/pods", params=params), partial(read_page, limit=PAGE))
            yield page.pods
            if page.cursor is None:
                return
            cursor = page.cursor
        raise ProviderUnavailable(f"runpod's list of pods does not end after {len(seen)} pages")


def _path(pod_id: str) -> str:
    if not _ID.fullmatch(pod_id):
        raise ProviderRejected(f"{pod_id[:100]!r} is not the id of a pod")
    return f"/pods/{pod_id}"


def _understood(
    answer: Answer,
    read: Callable[[object], T],
    *,
    unclear: type[ProviderUnavailable] = ProviderUnavailable,
) -> T:
    try:
        return read(answer.json())
    except Unreadable as error:
        raise unclear(
            f"runpod's answer to {answer.asked} makes no sense: {error} (request {answer.request_id})"
        ) from error
