"""The pods of the fake and all that may happen to them. It knows nothing of HTTP, and can be used without a server."""

import shlex
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from random import Random

from herdsman.testing.clocks import Timeline
from herdsman.testing.fakes.runpod import wire
from herdsman.testing.fakes.runpod.faults import Fault, Faults, Setting
from herdsman.testing.fakes.runpod.pod_process import Container
from herdsman.testing.fakes.runpod.pods import ACTIONS, FakePod, Pace, Status, container_environment

NOTICE = timedelta(seconds=5)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
CPU_PRICE = Decimal("0.06")
CRASH = ("sh", "-c", "echo crashed; exit 1")
FATES = (
    *(Fault.LISTING_LAG, Fault.NEVER_RUNNING, Fault.NO_SSH, Fault.SILENT, Fault.CRASH_LOOP),
    *(Fault.PREEMPTED, Fault.PREEMPTED_UNTOLD),
)
"""What happens to a pod is decided when it is created."""


@dataclass(kw_only=True)
class Cloud:
    """Every method may be called from any thread; each sees the pods as they are at that moment."""

    seed: int
    faults: Faults
    timeline: Timeline
    pace: Pace
    run_commands: bool
    page_size: int
    """A page is never longer, whatever was asked for."""
    volumes: dict[str, wire.NetworkVolume]
    """By their ids."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    ever: dict[str, FakePod] = field(default_factory=dict[str, FakePod])
    """Every pod there has ever been, by id, the oldest first."""
    most_alive: int = 0

    @cached_property
    def _folder(self) -> Path:
        """Where the containers are, once there is one."""
        return Path(tempfile.mkdtemp(prefix="fake-runpod-"))

    def create(self, body: object) -> FakePod:
        """The pod that the answer speaks of; a fault may have made a duplicate of it."""
        wanted = wire.check_create(body, self.volumes)
        if wanted.gpu is not None and self.faults.strikes(Fault.NO_CAPACITY, wanted.gpu.id):
            raise wire.Refused(400, "There are no longer any instances available with the requested specifications.")
        struck = ((fault, self.faults.strikes(fault, wanted.name)) for fault in FATES)
        fate = {fault: setting for fault, setting in struck if setting is not None}
        pod = self._add(wanted, fate)
        if self.faults.strikes(Fault.CREATED_TWICE, wanted.name):
            self._add(wanted, fate)
        return pod

    def add_foreign(self, name: str) -> FakePod:
        """A pod that somebody else has in the same account."""
        gpu = wire.GpuWanted(id="NVIDIA L4", count=1)
        return self._add(wire.CreateBody(name=name, image="elsewhere/image", disk=20, gpu=gpu), {}, foreign=True)

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
                raise wire.Refused(404, "pod not found")
            return pod

    def end(self, pod: FakePod) -> None:
        with self.lock:
            if pod.status is not Status.TERMINATED:
                pod.stop(self.timeline.now(), Status.TERMINATED)
                self._remove(pod.id)

    def act(self, pod: FakePod, action: str) -> None:
        with self.lock:
            if action not in ACTIONS[pod.status]:
                raise wire.Refused(409, f"cannot {action} a pod that is {pod.status}")
            now = self.timeline.now()
            if action == "start":
                # A stopped pod has given its GPU away, and may find none on its host.
                if pod.gpu_type is not None and self.faults.strikes(Fault.NO_CAPACITY, pod.gpu_type):
                    raise wire.Refused(400, "There are not enough free GPUs on the host machine to start this pod.")
                if self.faults.strikes(Fault.ZERO_GPU, pod.name):
                    pod.gpu_count = 0
                pod.fate, pod.preempted_at = {}, None
                pod.enter(Status.STARTING, now)
            elif action == "terminate":
                self.end(pod)
            else:
                pod.stop(now, Status.EXITED)
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
                self._advance(pod, now)

    def close(self) -> None:
        with self.lock:
            for pod in self._existing():
                self.end(pod)
            self._remove("")

    def _remove(self, part: str) -> None:
        if "_folder" in self.__dict__:
            shutil.rmtree(self._folder / part, ignore_errors=True)

    def _add(self, body: wire.CreateBody, fate: Mapping[Fault, Setting], *, foreign: bool = False) -> FakePod:
        mount, gpu_count = body.network_mount, (body.gpu and body.gpu.count) or 0
        preempted = fate.get(Fault.PREEMPTED) or fate.get(Fault.PREEMPTED_UNTOLD)
        with self.lock:
            number, now = len(self.ever), self.timeline.now()
            if mount is not None:
                data_center = self.volumes[mount.volume_id].data_center
            else:
                places = body.data_center_ids or wire.DATA_CENTERS
                data_center = Random(f"{self.seed}/place/{number}").choice(places)
            pod = FakePod(
                id="".join(Random(f"{self.seed}/pod/{number}").choices(LETTERS, k=14)),
                body=body,
                gpu_count=0 if self.faults.strikes(Fault.ZERO_GPU, body.name) else gpu_count,
                price=wire.price_of(body.gpu.id) * gpu_count if body.gpu else CPU_PRICE,
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
        body = pod.body
        command = [*body.entrypoint, *body.cmd] or shlex.split(body.args)
        if Fault.CRASH_LOOP in pod.fate:
            command = CRASH
        pod.write_log("system", "start container", self.timeline.now())
        if not command or not self.run_commands or Fault.SILENT in pod.fate:
            return
        # A network volume outlives its pods, and several may have it.
        mounts: dict[str, Path] = {}
        if (network := body.network_mount) is not None:
            mounts[network.path.rstrip("/")] = self._folder / "volumes" / network.volume_id
        elif (host := body.mounts.persistent) is not None:
            mounts[host.path.rstrip("/")] = self._folder / pod.id / "volume"
        pod.container = Container(
            command,
            container_environment(pod),
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

    def _advance(self, pod: FakePod, now: float) -> None:
        """Bring the pod to where it is at `now`."""
        placed = pod.entered + self.pace.provisioning.total_seconds()
        if pod.status is Status.PROVISIONING and now >= placed:
            pod.enter(Status.STARTING, placed)
        pulled = pod.entered + self.pace.starting.total_seconds()
        if pod.status is Status.STARTING and now >= pulled and Fault.NEVER_RUNNING not in pod.fate:
            pod.enter(Status.RUNNING, pulled)
            pod.started = pulled
            self._start_container(pod)
        if pod.status is Status.RUNNING:
            self._keep_running(pod, now)
        if pod.alive and pod.preempted_at is not None and now >= pod.preempted_at:
            if pod.dies_at is None:
                pod.dies_at = pod.preempted_at + (pod.notice.total_seconds() if pod.notice else 0)
                if pod.notice and pod.container is not None:
                    pod.container.ask_to_stop()
            if now >= pod.dies_at:
                pod.stop(pod.dies_at, Status.EXITED)

    def _keep_running(self, pod: FakePod, now: float) -> None:
        """A container that ends is started again: the pod stays RUNNING, and its uptime falls back."""
        pause = self.pace.restart.total_seconds()
        if pod.container is None:
            # Without a process the loop only shows in the uptime.
            if Fault.CRASH_LOOP in pod.fate and pod.started is not None and now - pod.started > pause:
                pod.started = now
        elif not pod.container.ended():
            return
        elif pod.exited is None:
            pod.exited = now
            pod.write_log("system", "container exited", now)
        elif now - pod.exited >= pause:
            pod.container.kill()
            pod.started, pod.exited = now, None
            self._start_container(pod)
