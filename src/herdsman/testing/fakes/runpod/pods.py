"""A pod of the fake: what was asked for, where it is in its life, what it has cost, and how the API shows it."""

import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from herdsman.testing.clocks import Timeline
from herdsman.testing.fakes.runpod.faults import Fault, Setting
from herdsman.testing.fakes.runpod.pod_process import Container
from herdsman.testing.fakes.runpod.wire import CUDA, CreateBody

SSH = "22/tcp"
VCPUS_PER_GPU = 16
MEMORY_PER_GPU_GB = 96
MAX_LOG_LINES = 5000
HOUR = Decimal(3600)

LogEntry = tuple[float, str, str]
"""When, from which source, what."""


class Status(StrEnum):
    PROVISIONING = "PROVISIONING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"
    ERROR = "ERROR"
    TERMINATED = "TERMINATED"


ALIVE = frozenset({Status.PROVISIONING, Status.STARTING, Status.RUNNING})
ACTIONS: Mapping[Status, tuple[str, ...]] = {
    Status.PROVISIONING: ("stop", "terminate"),
    Status.STARTING: ("stop", "terminate"),
    Status.RUNNING: ("stop", "restart", "terminate"),
    Status.EXITED: ("start", "terminate"),
    Status.ERROR: ("start", "terminate"),
    Status.TERMINATED: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long things take, in the time of the fake."""

    provisioning: timedelta = timedelta(0)
    starting: timedelta = timedelta(0)
    restart: timedelta = timedelta(seconds=1)
    """From the exit of a container to its next start."""
    tombstone: timedelta = timedelta(0)
    """How long a deleted pod is still shown, as TERMINATED."""


@dataclass(slots=True, kw_only=True)
class FakePod:
    id: str
    body: CreateBody
    gpu_count: int
    price: Decimal
    """US dollars an hour while it is alive."""
    data_center: str
    number: int
    created: float
    entered: float
    """When it came into its status."""
    lives: list[tuple[float, float | None]]
    """From when to when it was alive, and billed; the last one is open while it is."""
    fate: Mapping[Fault, Setting]
    """What faults have in store for it."""
    preempted_at: float | None = None
    notice: timedelta | None = None
    foreign: bool = False

    status: Status = Status.PROVISIONING
    started: float | None = None
    """When its container last started."""
    exited: float | None = None
    """When it ended, while it waits for its next start."""
    dies_at: float | None = None
    """Set once it has been told that it will be preempted."""
    container: Container | None = None
    log: deque[LogEntry] = field(default_factory=lambda: deque[LogEntry](maxlen=MAX_LOG_LINES))
    """Container and cloud write it from threads of their own."""
    log_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def alive(self) -> bool:
        return self.status in ALIVE

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def gpu_type(self) -> str | None:
        return None if self.body.gpu is None else self.body.gpu.id

    @property
    def has_ssh(self) -> bool:
        return SSH in self.body.ports and Fault.NO_SSH not in self.fate

    @property
    def own_key(self) -> str:
        """The key that the pod finds in its environment; it is good for this pod alone."""
        return f"rpa_pod_{self.id}"

    def enter(self, status: Status, now: float) -> None:
        """Billing follows the status: it stops with the compute."""
        if status in ALIVE and not self.alive:
            self.lives.append((now, None))
        elif self.alive and status not in ALIVE:
            self.lives[-1] = (self.lives[-1][0], now)
        self.status, self.entered = status, now
        self.write_log("system", f"pod is {status}", now)

    def stop(self, now: float, status: Status) -> None:
        """Compute ends here, and with it whatever runs in the container."""
        self.enter(status, now)
        self.started = self.dies_at = None
        if self.container is not None:
            self.container.kill()
            self.container = None

    def cost(self, now: float) -> Decimal:
        """By the second."""
        seconds = sum((now if end is None else end) - start for start, end in self.lives)
        return self.price * Decimal(int(seconds)) / HOUR

    def write_log(self, source: str, line: str, now: float) -> None:
        with self.log_lock:
            self.log.append((now, source, line))

    def lines(self, sources: Collection[str]) -> list[LogEntry]:
        with self.log_lock:
            return [entry for entry in self.log if entry[1] in sources]


def pod_view(pod: FakePod, timeline: Timeline) -> dict[str, object]:
    body, now = pod.body, timeline.now()
    running, placed = pod.status is Status.RUNNING, pod.status is not Status.PROVISIONING
    compute: dict[str, object] = {"cpu": {**(body.cpu or {}), "memory": MEMORY_PER_GPU_GB}}
    if pod.gpu_type is not None:
        size = {"vcpuCount": VCPUS_PER_GPU * pod.gpu_count, "memory": MEMORY_PER_GPU_GB * pod.gpu_count}
        compute = {"gpu": {"id": pod.gpu_type, "count": pod.gpu_count, **size}}
    ports: list[dict[str, object]] = []
    for port in body.ports:
        if port != SSH or pod.has_ssh:
            number, kind = port.split("/")
            ip = "127.0.0.1" if kind == "tcp" else "100.65.0.1"
            ports.append({"private": int(number), "public": _public_port(pod, port), "type": kind, "ip": ip})
    runtime = {
        "uptime": 0 if pod.started is None or pod.exited is not None else int(now - pod.started),
        "gpus": [{"util": 0, "memoryUtil": 0} for _ in range(pod.gpu_count)],
        "cpu": {"util": 1},
        "memory": {"util": 1},
        "ports": ports,
    }
    direct = _ssh_end("127.0.0.1", _public_port(pod, SSH), "root") if running and pod.has_ssh else None
    return {
        "id": pod.id,
        "name": pod.name,
        "status": pod.status.value,
        "actions": list(ACTIONS[pod.status]),
        "image": body.image or "runpod/from-a-template:1",
        **{name: getattr(body, name) for name in ("args", "disk", "ports", "env", "registry", "cloud")},
        "mounts": body.mounts.model_dump(by_alias=True, exclude_none=True),
        "dataCenterId": pod.data_center,
        "cudaVersion": CUDA if pod.gpu_type else None,
        "ssh": {"proxy": _ssh_end("ssh.runpod.io", 22, f"{pod.id}-fake") if placed else None, "direct": direct},
        "template": None,
        "cost": float(pod.price) if pod.alive else 0.0,
        "locked": False,
        "globalNetworking": {"enabled": False},
        "runtime": runtime if running else None,
        "createdAt": timeline.text(pod.created),
        "startedAt": None if pod.started is None else timeline.text(pod.started),
        **compute,
    }


def container_environment(pod: FakePod) -> dict[str, str]:
    """What Runpod adds to the environment of a container; the GPUs of a fake pod are simulated."""
    mount = pod.body.network_mount
    return {
        "FAKE_GPUS": str(pod.gpu_count),
        **pod.body.env,
        "RUNPOD_POD_ID": pod.id,
        "RUNPOD_POD_HOSTNAME": f"{pod.id}-fake",
        "RUNPOD_DC_ID": pod.data_center,
        "RUNPOD_GPU_COUNT": str(pod.gpu_count),
        "RUNPOD_CPU_COUNT": str(VCPUS_PER_GPU * max(1, pod.gpu_count)),
        "RUNPOD_PUBLIC_IP": "127.0.0.1",
        "RUNPOD_API_KEY": pod.own_key,
        "CUDA_VERSION": CUDA,
        **({"RUNPOD_VOLUME_ID": mount.volume_id} if mount else {}),
        **({"RUNPOD_TCP_PORT_22": str(_public_port(pod, SSH))} if pod.has_ssh else {}),
    }


def _public_port(pod: FakePod, port: str) -> int:
    return 32_768 + (pod.number * 31 + int(port.partition("/")[0])) % 28_000


def _ssh_end(host: str, port: int, username: str) -> dict[str, object]:
    command = f"ssh {username}@{host} -p {port}"
    return {"host": host, "port": port, "username": username, "command": command}
