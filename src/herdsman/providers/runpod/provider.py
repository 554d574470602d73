"""Pods as instances: how one is asked for, found again and ended."""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from types import MappingProxyType

import httpx
import structlog
from pydantic import BaseModel, ValidationError

from herdsman import __version__
from herdsman.errors import CapacityUnavailable, ProviderRejected, ProviderUnavailable, SpawnUnknown
from herdsman.fleet.model import Instance, InstanceRef, InstanceStatus, SpawnRequest
from herdsman.ports import Clock
from herdsman.providers.runpod import answers
from herdsman.providers.runpod.options import SSH_PORT, RunpodOptions, pod_environment
from herdsman.providers.runpod.placement import Stock, candidates, chosen, create_body
from herdsman.web import NEVER_SENT, sent, whole

LONGEST_LINE = 4096
LARGEST_ANSWER = 32 * 1024 * 1024
LARGEST_STREAM = 4 * 1024 * 1024
PAGE = 1000
MOST_PAGES = 100
MOST_LOG_LINES = 5000
LOG_SILENCE = timedelta(seconds=2)
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

_STATES: Mapping[str, InstanceStatus] = MappingProxyType(
    {
        "PROVISIONING": InstanceStatus.STARTING,
        "STARTING": InstanceStatus.STARTING,
        "RUNNING": InstanceStatus.RUNNING,
        "EXITED": InstanceStatus.STOPPED,
        "ERROR": InstanceStatus.BROKEN,
    }
)


class RunpodProvider:
    """Safe to share between threads. The key goes into one header, and nowhere else."""

    name = "runpod"

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
        self._volumes: tuple[answers.Volume, ...] | None = None
        self._key = options.api_key.get_secret_value()
        self._timeout = options.timeout.total_seconds()
        self._clock = clock
        self._log_silence = log_silence
        self._client = httpx.Client(
            base_url=options.api_url,
            headers={"Authorization": f"Bearer {self._key}", "User-Agent": f"herdsman/{__version__}"},
            timeout=self._timeout,
            # A kept connection may have been closed at the other end, and a create on it would be unclear.
            limits=httpx.Limits(max_keepalive_connections=0),
            transport=transport,
        )

    def close(self) -> None:
        self._client.close()

    def spawn(self, request: SpawnRequest) -> Instance:
        """Candidates are tried in turn; only a refusal of one, which started nothing, leads to the next."""
        if not self._naming.owns(request.name):
            raise ProviderRejected(f"{request.name!r} is not a name that this deployment would know again")
        options = self._pools.get(request.pool, self.options)
        environment = pod_environment(request.environment, options.environment, options.api_key)
        ladder = self._stock.in_order(candidates(options, self._known_volumes(options)))[:MOST_TRIES]
        refusals: list[CapacityUnavailable | answers.NotAllowed] = []
        for candidate in ladder:
            try:
                body = create_body(options, candidate, name=request.name, environment=environment)
                secrets = tuple(environment.values())
                answer = self._ask("POST", "/pods", body=body, unclear=SpawnUnknown, secrets=secrets)
                pod = answer.read(answers.Pod, SpawnUnknown)
            except (CapacityUnavailable, answers.NotAllowed) as refused:
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
        if all(isinstance(refused, answers.NotAllowed) for refused in refusals):
            raise ProviderRejected(str(refusals[-1]))
        tried = ", ".join(str(candidate) for candidate in ladder)
        raise CapacityUnavailable(f"runpod has none of: {tried}; at last: {refusals[-1]}")

    def find(self, ref: InstanceRef) -> Instance | None:
        pod = self._get_pod(ref)
        return None if pod is None or pod.gone else self._instance(pod)

    def terminate(self, ref: InstanceRef) -> None:
        with suppress(answers.NotThere):  # it is gone already
            self._ask("DELETE", _path(ref))

    def list_instances(self) -> Sequence[Instance]:
        ours = [pod for pod in self._list_pods() if self._naming.owns(pod.name)]
        return [self._instance(pod) for pod in ours if not pod.gone]

    def grow_volume(self, ref: InstanceRef, *, seen_gb: float, by_gb: int) -> str:
        """By its size at Runpod, so that asking twice grows it once: it is left alone until its pods see that size."""
        pod = self._get_pod(ref)
        volume_id = None if pod is None else pod.volume_id
        volume = next((each for each in self.list_volumes() if each.id == volume_id), None)
        if volume is None:
            raise ProviderRejected(f"pod {ref} has no network volume of this Runpod account to grow")
        if volume.size_gb > SEEN_WITHIN * seen_gb:
            return f"volume {volume.name} has {volume.size_gb} GB already, its pods see {seen_gb:.0f}"
        if seen_gb > volume.size_gb * SHARED_BEYOND:
            return (
                f"pods see {seen_gb:.0f} GB where volume {volume.name} has {volume.size_gb}: it is not judged by that"
            )
        size = min(volume.size_gb + by_gb, LARGEST_VOLUME_GB)
        if size == volume.size_gb:
            raise ProviderRejected(f"volume {volume.name} has {size} GB, the most that Runpod gives: make room on it")
        self._ask("PATCH", f"/network-volumes/{_checked('volume', volume.id)}", body={"size": size})
        return f"volume {volume.name} has {size} GB now"

    def logs(self, ref: InstanceRef, lines: int) -> Sequence[str]:
        """The last lines. The stream stays open for more, so it is left once they are here, or it is silent."""
        wanted = min(lines, MOST_LOG_LINES)
        if wanted <= 0:
            return []
        path, silence = f"{_path(ref)}/logs", self._log_silence
        timeout = httpx.Timeout(self._timeout, read=silence.total_seconds())
        request = self._client.build_request("GET", path, params={"tail": str(wanted)}, timeout=timeout)
        with suppress(answers.NotThere), self._sent(request, f"GET {path}") as response:
            return list(islice(log_lines(self._until_silent(response, 3 * silence)), wanted))
        return []

    def list_gpu_types(self, cloud: str) -> tuple[answers.GpuType, ...]:
        """What there is to rent, and whether some are left now: a hint, and no promise."""
        params = {"include": "AVAILABILITY", "product": "POD", "count": "1", "cloud": cloud}
        return self._ask("GET", "/catalog/gpus", params=params).read(answers.GpuTypes).gpus

    def spent_lately(self) -> Decimal:
        """USD of the last day; it lags behind by about an hour."""
        params = {"bucketSize": "hour", "lastN": "24"}
        return self._ask("GET", "/billing/pods", params=params).read(answers.Bill).total

    def _known_volumes(self, options: RunpodOptions) -> tuple[answers.Volume, ...]:
        """Asked for once: the id and the place of a volume never change."""
        if not options.volumes:
            return ()
        there = self._volumes if self._volumes is not None else self.list_volumes()
        found = chosen(options.volumes, there)
        self._volumes = there  # kept only when it had all: what is missing may be made meanwhile
        return found

    def _instance(self, pod: answers.Pod) -> Instance:
        status = _STATES.get(pod.status, InstanceStatus.UNKNOWN)
        if status is InstanceStatus.RUNNING and SSH_PORT in self.options.ports and not pod.ssh_ready:
            status = InstanceStatus.STARTING
        return Instance(
            ref=InstanceRef(pod.id),
            name=pod.name,
            status=status,
            gpu_type=pod.gpu_type,
            gpu_count=pod.gpu_count,
            cost_per_hour=pod.cost_per_hour,
            created_at=pod.created_at,
        )

    def _list_pods(self) -> list[answers.Pod]:
        """All of them, page by page. A page that is missing or broken makes the whole an error."""
        found: dict[str, answers.Pod] = {}
        asked: set[str | None] = set()
        cursor: str | None = None
        while len(asked) < MOST_PAGES and cursor not in asked:
            asked.add(cursor)
            params = {"limit": str(PAGE)} | ({} if cursor is None else {"cursor": cursor})
            page = self._ask("GET", "/pods", params=params).read(answers.Page)
            # A pod that is created meanwhile pushes others onto the next page, where they come again.
            found.update({pod.id: pod for pod in page.pods})
            following = page.pagination
            if following is None and len(page.pods) == PAGE:
                break  # a list that was cut short looks like this
            if following is None or following.get("hasNextPage") is False:
                return list(found.values())
            match following.get("nextCursor"):
                case str(cursor) if cursor:
                    pass
                case _:
                    break
        raise ProviderUnavailable(f"runpod's list of pods does not end after {len(asked)} pages")

    def _get_pod(self, pod_id: str) -> answers.Pod | None:
        try:
            return self._ask("GET", _path(pod_id)).read(answers.Pod)
        except answers.NotThere:
            return None

    def list_volumes(self) -> tuple[answers.Volume, ...]:
        return self._ask("GET", "/network-volumes").read(answers.Volumes).volumes

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        params: Mapping[str, str] | None = None,
        unclear: type[ProviderUnavailable] = ProviderUnavailable,
        secrets: Sequence[str] = (),
    ) -> answers.Answer:
        """The answer to a call that succeeded. `secrets` are values in the body that no error may repeat."""
        request = self._client.build_request(method, path, json=body, params=params)
        asked = f"{method} {path}"
        with self._sent(request, asked, unclear, secrets) as response:
            return self._read(asked, response)

    @contextmanager
    def _sent(
        self,
        request: httpx.Request,
        asked: str,
        unclear: type[ProviderUnavailable] = ProviderUnavailable,
        secrets: Sequence[str] = (),
    ) -> Generator[httpx.Response]:
        """The response of a call that succeeded, not read yet."""
        try:
            with sent(self._client, request) as response:
                if response.is_success:
                    yield response
                    return
                answer = self._read(asked, response)
        except NEVER_SENT as error:
            raise ProviderUnavailable(f"runpod could not be reached for {asked}: {error}") from error
        except httpx.HTTPError as error:
            # Only its kind, and not as the cause: the text of a protocol error repeats what was sent or received.
            raise unclear(f"runpod did not answer {asked} to the end: {type(error).__name__}") from None
        raise answers.refusal(answer, unclear=unclear, secrets=(*secrets, self._key))

    def _read(self, asked: str, response: httpx.Response) -> answers.Answer:
        body = whole(response, self._clock, seconds=self._timeout, largest=LARGEST_ANSWER)
        return answers.Answer(asked, response.status_code, response.headers, body)

    def _until_silent(self, response: httpx.Response, at_most: timedelta) -> Iterator[str]:
        """What comes down an endless stream, until it is silent or has said too much."""
        deadline = self._clock.monotonic() + at_most.total_seconds()
        size = 0
        with suppress(httpx.TransportError):
            for chunk in response.iter_text():
                yield chunk
                size += len(chunk)
                if size > LARGEST_STREAM or self._clock.monotonic() > deadline:
                    return


class LogEvent(BaseModel):
    line: str


def log_lines(chunks: Iterable[str]) -> Iterator[str]:
    """The `line` of each event; what is no event of that kind is skipped."""
    rest = ""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split("\n")
        for line in lines:
            field, _, value = line.partition(":")
            if field == "data":
                with suppress(ValidationError):
                    yield LogEvent.model_validate_json(value, strict=True).line[:LONGEST_LINE]


def _path(pod_id: str) -> str:
    return f"/pods/{_checked('pod', pod_id)}"


def _checked(what: str, identifier: str) -> str:
    if not _ID.fullmatch(identifier):
        raise ProviderRejected(f"{identifier[:100]!r} is not the id of a {what}")
    return identifier
