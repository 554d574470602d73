"""The pods of the fake and all that may happen to them. It knows nothing of HTTP, and can be used without a server."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from random import Random

from herdsman.testing.clocks import Timeline
from herdsman.testing.fakes.runpod import wire
from herdsman.testing.fakes.runpod.faults import Fault, Faults, Setting
from herdsman.testing.fakes.runpod.wire import CUDA, CreateBody

LONGEST_LINE = 4096
GRACE_S = 10
# As in an image, nothing of ours is there; but what is installed beside us can be started by its name.
PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
PR_SET_CHILD_SUBREAPER = 36
COULD_NOT_START = 127


class Container:
    """One run of a pod's command, in a process group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        say: Callable[[str], None],
        *,
        folder: Path,
        mounts: Mapping[str, Path],
    ) -> None:
        """`mounts` are the folders that stand for volumes, by the path under which the pod knows them."""
        for each in (folder, *mounts.values()):
            each.mkdir(parents=True, exist_ok=True)
        given = {name: _placed(value, mounts) for name, value in environment.items()}
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *(_placed(word, mounts) for word in command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": str(folder), **given},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(say,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ended(self) -> bool:
        return self._popen.poll() is not None

    def ask_to_stop(self) -> None:
        self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Everything in it is gone when this returns."""
        assert self._popen.stdin is not None
        # With the pipe closed, the first process kills the rest and follows.
        self._popen.stdin.close()
        try:
            self._popen.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        self._reader.join(GRACE_S)

    def _read(self, say: Callable[[str], None]) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            while line := output.readline(LONGEST_LINE):
                say(line.decode(errors="replace").rstrip("\n"))


def _placed(text: str, mounts: Mapping[str, Path]) -> str:
    for path, folder in mounts.items():
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", lambda _, here=folder: str(here), text)
    return text


def main(command: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        first = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} could not be started: {error}", flush=True)
        return COULD_NOT_START

    def end_with_the_pipe() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        send(first.pid, signal.SIGKILL)

    # Whoever stops a container asks its first process, and only that.
    signal.signal(signal.SIGTERM, lambda _, __: send(first.pid, signal.SIGTERM))
    threading.Thread(target=end_with_the_pipe, daemon=True).start()
    pid, status = 0, 0
    while pid != first.pid:  # reap whatever ends, until it is the first process
        pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    # Each round ends the children, and the next one those that have become ours by that.
    while left := children(os.getpid()):
        for pid in left:
            send(pid, signal.SIGKILL)
        for pid in left:
            os.waitpid(pid, 0)
    return code if code >= 0 else 128 - code


def send(pid: int, word: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, word)


def children(parent: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


if __name__ == "__main__":
    # At once: the thread at the pipe would not let the interpreter end.
    os._exit(main(sys.argv[1:]))


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
