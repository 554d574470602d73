"""The pods of the fake and all that may happen to them. It knows nothing of HTTP, and can be used without a server."""

import shlex
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from random import Random

from herdsman.testing.clocks import Timeline
from herdsman.testing.fakes.runpod.faults import Fault, Faults, Setting
from herdsman.testing.fakes.runpod.pod_process import Container
from herdsman.testing.fakes.runpod.pods import (
    ACTIONS,
    SSH,
    FakePod,
    Pace,
    Status,
    container_environment,
)
from herdsman.testing.fakes.runpod.wire import (
    DATA_CENTERS,
    GPUS,
    VOLUMES,
    NetworkVolume,
    Refused,
    check_create,
    network_mount,
    objects,
    texts,
)

NOTICE = timedelta(seconds=5)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
CPU_PRICE = Decimal("0.06")
CRASH = ("sh", "-c", "echo crashed; exit 1")
FATES = (
    *(Fault.LISTING_LAG, Fault.NEVER_RUNNING, Fault.NO_SSH, Fault.SILENT, Fault.CRASH_LOOP),
    *(Fault.PREEMPTED, Fault.PREEMPTED_UNTOLD),
)
"""What happens to a pod is decided when it is created."""


class Cloud:
    """Every method may be called from any thread; each sees the pods as they are at that moment."""

    def __init__(
        self,
        *,
        seed: int,
        faults: Faults,
        timeline: Timeline,
        pace: Pace,
        run_commands: bool,
        page_size: int,
        volumes: Sequence[NetworkVolume] = VOLUMES,
    ) -> None:
        self.faults = faults
        self.timeline = timeline
        self.pace = pace
        self.volumes = {volume.id: volume for volume in volumes}
        self.page_size = page_size
        """A page is never longer, whatever was asked for."""
        self.lock = threading.RLock()
        self.ever: dict[str, FakePod] = {}
        """Every pod there has ever been, by id, the oldest first."""
        self.most_alive = 0
        self._seed = seed
        self._run_commands = run_commands

    @cached_property
    def _folder(self) -> Path:
        """Where the containers are, once there is one."""
        return Path(tempfile.mkdtemp(prefix="fake-runpod-"))

    def create(self, body: object) -> FakePod:
        """The pod that the answer speaks of; a fault may have made a duplicate of it."""
        fields = check_create(body, self.volumes)
        gpu_type = objects(fields, "gpu").get("id")
        if gpu_type is not None and self.faults.strikes(Fault.NO_CAPACITY, str(gpu_type)):
            raise Refused(
                400, "There are no longer any instances available with the requested specifications."
            )
        name = str(fields["name"])
        struck = ((fault, self.faults.strikes(fault, name)) for fault in FATES)
        fate = {fault: setting for fault, setting in struck if setting is not None}
        pod = self._add(fields, fate)
        if self.faults.strikes(Fault.CREATED_TWICE, name):
            self._add(fields, fate)
        return pod

    def add_foreign(self, name: str) -> FakePod:
        """A pod that somebody else has in the same account."""
        gpu = {"id": "NVIDIA L4", "count": 1}
        body: dict[str, object] = {"name": name, "image": "elsewhere/image", "disk": 20, "gpu": gpu}
        return self._add(body, {}, foreign=True)

    def visible(self) -> list[FakePod]:
        """As a listing shows them: the newest first."""
        with self.lock:
            self.settle()
            now = self.timeline.now()
            return [pod for pod in reversed(self.ever.values()) if self._shows(pod, now)]

    def find(self, pod_id: str) -> FakePod:
        with self.lock:
            self.settle()
            pod = self.ever.get(pod_id)
            if pod is None or not self._shows(pod, self.timeline.now()):
                raise Refused(404, "pod not found")
            return pod

    def end(self, pod: FakePod) -> None:
        with self.lock:
            if pod.status is not Status.TERMINATED:
                stop(pod, self.timeline.now(), Status.TERMINATED)
                self._remove(pod.id)

    def act(self, pod: FakePod, action: str) -> None:
        with self.lock:
            if action not in ACTIONS[pod.status]:
                raise Refused(409, f"cannot {action} a pod that is {pod.status}")
            now = self.timeline.now()
            if action == "start":
                # A stopped pod has given its GPU away, and may find none on its host.
                if pod.gpu_type is not None and self.faults.strikes(Fault.NO_CAPACITY, pod.gpu_type):
                    raise Refused(
                        400, "There are not enough free GPUs on the host machine to start this pod."
                    )
                if self.faults.strikes(Fault.ZERO_GPU, pod.name):
                    pod.gpu_count = 0
                pod.fate, pod.preempted_at = {}, None
                pod.enter(Status.STARTING, now)
            elif action == "terminate":
                self.end(pod)
            else:
                stop(pod, now, Status.EXITED)
                if action == "restart":
                    pod.enter(Status.STARTING, now)
            self.settle()

    def preempt(self, pod_id: str, notice: timedelta | None) -> None:
        with self.lock:
            pod = self.ever[pod_id]
            pod.preempted_at, pod.notice = self.timeline.now(), notice
            self.settle()

    def settle(self) -> None:
        """Let what is due happen."""
        with self.lock:
            now = self.timeline.now()
            for pod in self._existing():
                advance(pod, now, self.pace, self._start_container)

    def close(self) -> None:
        with self.lock:
            for pod in self._existing():
                self.end(pod)
            self._remove("")

    def _remove(self, part: str) -> None:
        if "_folder" in self.__dict__:
            shutil.rmtree(self._folder / part, ignore_errors=True)

    def _add(
        self, body: dict[str, object], fate: Mapping[Fault, Setting], *, foreign: bool = False
    ) -> FakePod:
        name, gpu, mount = str(body["name"]), objects(body, "gpu"), network_mount(body)
        gpu_type = str(gpu["id"]) if gpu else None
        gpu_count = int(str(gpu["count"])) if gpu else 0
        preempted = fate.get(Fault.PREEMPTED) or fate.get(Fault.PREEMPTED_UNTOLD)
        with self.lock:
            number, now = len(self.ever), self.timeline.now()
            if mount is not None:
                data_center = self.volumes[mount["volumeId"]].data_center
            else:
                places = texts(body, "dataCenterIds") or DATA_CENTERS
                data_center = Random(f"{self._seed}/place/{number}").choice(places)
            pod = FakePod(
                id="".join(Random(f"{self._seed}/pod/{number}").choices(LETTERS, k=14)),
                name=name,
                body=body,
                gpu_type=gpu_type,
                gpu_count=0 if self.faults.strikes(Fault.ZERO_GPU, name) else gpu_count,
                price=GPUS[gpu_type].price * gpu_count if gpu_type else CPU_PRICE,
                data_center=data_center,
                number=number,
                created=now,
                entered=now,
                lives=[(now, None)],
                fate=fate,
                preempted_at=now + preempted.lasting.total_seconds() if preempted else None,
                notice=NOTICE if Fault.PREEMPTED in fate else None,
                foreign=foreign,
            )
            pod.write_log("system", "create pod", pod.created)
            self.ever[pod.id] = pod
            self.settle()
            ours = sum(each.alive for each in self.ever.values() if not each.foreign)
            self.most_alive = max(self.most_alive, ours)
            return pod

    def _start_container(self, pod: FakePod) -> None:
        given = [*texts(pod.body, "entrypoint"), *texts(pod.body, "cmd")]
        command = (
            CRASH if Fault.CRASH_LOOP in pod.fate else given or shlex.split(str(pod.body.get("args", "")))
        )
        pod.write_log("system", "start container", self.timeline.now())
        if not command or not self._run_commands or Fault.SILENT in pod.fate:
            return
        # A network volume outlives its pods, and several may have it.
        mounts: dict[str, Path] = {}
        network, persistent = network_mount(pod.body), objects(objects(pod.body, "mounts"), "persistent")
        if network is not None:
            mounts[network["path"].rstrip("/")] = self._folder / "volumes" / network["volumeId"]
        elif persistent:
            mounts[str(persistent["path"]).rstrip("/")] = self._folder / pod.id / "volume"
        ssh_port = SSH if SSH in texts(pod.body, "ports") and Fault.NO_SSH not in pod.fate else None
        pod.container = Container(
            command,
            container_environment(pod, ssh_port=ssh_port),
            lambda line: pod.write_log("container", line, self.timeline.now()),
            folder=self._folder / pod.id,
            mounts=mounts,
        )

    def _shows(self, pod: FakePod, now: float) -> bool:
        if pod.status is Status.TERMINATED:
            return now < pod.entered + self.pace.tombstone.total_seconds()
        lag = pod.fate.get(Fault.LISTING_LAG)
        return lag is None or now >= pod.created + lag.lasting.total_seconds()

    def _existing(self) -> list[FakePod]:
        return [pod for pod in self.ever.values() if pod.status is not Status.TERMINATED]


def advance(pod: FakePod, now: float, pace: Pace, start: Callable[[FakePod], None]) -> None:
    """Bring the pod to where it is at `now`; `start` gives it a container."""
    placed = pod.entered + pace.provisioning.total_seconds()
    if pod.status is Status.PROVISIONING and now >= placed:
        pod.enter(Status.STARTING, placed)
    pulled = pod.entered + pace.starting.total_seconds()
    if pod.status is Status.STARTING and now >= pulled and Fault.NEVER_RUNNING not in pod.fate:
        pod.enter(Status.RUNNING, pulled)
        pod.started = pulled
        start(pod)
    if pod.status is Status.RUNNING:
        _keep_running(pod, now, pace, start)
    if pod.alive:
        _preempt(pod, now)


def stop(pod: FakePod, now: float, status: Status) -> None:
    """Compute ends here, and with it whatever runs in the container."""
    pod.enter(status, now)
    pod.started = pod.dies_at = None
    if pod.container is not None:
        pod.container.kill()
        pod.container = None


def _keep_running(pod: FakePod, now: float, pace: Pace, start: Callable[[FakePod], None]) -> None:
    """A container that ends is started again: the pod stays RUNNING, and its uptime falls back."""
    if pod.container is None:
        # Without a process the loop only shows in the uptime.
        if (
            Fault.CRASH_LOOP in pod.fate
            and pod.started is not None
            and now - pod.started > pace.restart.total_seconds()
        ):
            pod.started = now
        return
    if not pod.container.ended():
        return
    if pod.exited is None:
        pod.exited = now
        pod.write_log("system", "container exited", now)
    elif now - pod.exited >= pace.restart.total_seconds():
        pod.container.kill()
        pod.started, pod.exited = now, None
        start(pod)


def _preempt(pod: FakePod, now: float) -> None:
    if pod.preempted_at is None or now < pod.preempted_at:
        return
    if pod.dies_at is None:
        pod.dies_at = pod.preempted_at + (pod.notice.total_seconds() if pod.notice else 0)
        if pod.notice and pod.container is not None:
            pod.container.ask_to_stop()
    if now >= pod.dies_at:
        stop(pod, pod.dies_at, Status.EXITED)
