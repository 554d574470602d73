"""Pods as instances: how one is asked for, found again and ended."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

import httpx
import structlog

from herdsman.errors import CapacityUnavailable, ProviderRejected, SpawnUnknown
from herdsman.fleet.model import Instance, InstanceRef, InstanceState, SpawnRequest
from herdsman.ports import Clock
from herdsman.providers.runpod.answers import NotAllowed, Pod, Volume
from herdsman.providers.runpod.api import LOG_SILENCE, RunpodApi, Wire
from herdsman.providers.runpod.options import SSH_PORT, RunpodOptions, pod_environment
from herdsman.providers.runpod.placement import Candidate, Stock, candidates, chosen, create_body

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
                return self._create(options, request.name, candidate, environment)
            except (CapacityUnavailable, NotAllowed) as refused:
                if isinstance(refused, CapacityUnavailable):
                    self._stock.ran_out(candidate)
                log.info("runpod.candidate_refused", candidate=str(candidate), reason=str(refused))
                refusals.append(refused)
        raise _nothing_left(ladder, refusals)

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

    def _create(
        self, options: RunpodOptions, name: str, candidate: Candidate, environment: Mapping[str, str]
    ) -> Instance:
        body = create_body(options, candidate, name=name, environment=environment)
        pod = self.api.create_pod(body, secrets=tuple(environment.values()))
        if pod.name != name:
            raise SpawnUnknown(f"runpod was asked for {name} and started pod {pod.id} under another name")
        return self._instance(pod)

    def _instance(self, pod: Pod) -> Instance:
        return Instance(
            ref=InstanceRef(pod.id),
            name=pod.name,
            state=self._state(pod),
            gpu_type=pod.gpu_type,
            gpu_count=pod.gpu_count,
            cost_per_hour=pod.cost_per_hour,
            created_at=pod.created_at,
        )

    def _state(self, pod: Pod) -> InstanceState:
        state = _STATES.get(pod.status, InstanceState.UNKNOWN)
        if state is InstanceState.RUNNING and SSH_PORT in self.options.ports and not pod.ssh_ready:
            return InstanceState.STARTING
        return state


def _nothing_left(
    ladder: Sequence[Candidate], refusals: Sequence[CapacityUnavailable | NotAllowed]
) -> CapacityUnavailable | ProviderRejected:
    """The last refusal is shown too: Runpod tells a wrong request from empty shelves in its words only."""
    if all(isinstance(refused, NotAllowed) for refused in refusals):
        return ProviderRejected(str(refusals[-1]))
    tried = ", ".join(str(candidate) for candidate in ladder)
    return CapacityUnavailable(f"runpod has none of: {tried}; at last: {refusals[-1]}")
