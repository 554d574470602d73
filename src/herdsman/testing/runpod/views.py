"""Pods, stock and bills in the words of Runpod's API."""

from collections.abc import Mapping
from decimal import Decimal

from herdsman.testing.runpod.bodies import network_mount, objects, texts
from herdsman.testing.runpod.catalog import DATA_CENTERS, Gpu, NetworkVolume
from herdsman.testing.runpod.clocks import Timeline
from herdsman.testing.runpod.pods import ACTIONS, FakePod, Status

SSH = "22/tcp"
CUDA = "12.8"
VCPUS_PER_GPU = 16
MEMORY_PER_GPU_GB = 96


def pod_view(pod: FakePod, timeline: Timeline) -> dict[str, object]:
    running = pod.status is Status.RUNNING
    return {
        "id": pod.id,
        "name": pod.name,
        "status": pod.status.value,
        "actions": list(ACTIONS[pod.status]),
        "image": pod.body.get("image", "runpod/from-a-template:1"),
        "args": pod.body.get("args", ""),
        "disk": pod.body.get("disk", 20),
        "mounts": objects(pod.body, "mounts"),
        "ports": texts(pod.body, "ports"),
        "env": objects(pod.body, "env"),
        "registry": pod.body.get("registry"),
        "cloud": pod.body.get("cloud", "SECURE"),
        "dataCenterId": pod.data_center,
        "cudaVersion": CUDA if pod.gpu_type else None,
        "ssh": _ssh(pod),
        "template": None,
        "cost": float(pod.price) if pod.alive else 0.0,
        "locked": False,
        "globalNetworking": {"enabled": False},
        "runtime": _runtime(pod, timeline.now()) if running else None,
        "createdAt": timeline.text(pod.created),
        "startedAt": None if pod.started is None else timeline.text(pod.started),
        **_compute(pod),
    }


def container_environment(pod: FakePod, *, ssh_port: str | None) -> dict[str, str]:
    """What Runpod adds to the environment of a container; the GPUs of a fake pod are pretended."""
    mount = network_mount(pod.body)
    return {
        "FAKE_GPUS": str(pod.gpu_count),
        **{name: str(value) for name, value in objects(pod.body, "env").items()},
        "RUNPOD_POD_ID": pod.id,
        "RUNPOD_POD_HOSTNAME": f"{pod.id}-fake",
        "RUNPOD_DC_ID": pod.data_center,
        "RUNPOD_GPU_COUNT": str(pod.gpu_count),
        "RUNPOD_CPU_COUNT": str(VCPUS_PER_GPU * max(1, pod.gpu_count)),
        "RUNPOD_PUBLIC_IP": "127.0.0.1",
        "RUNPOD_API_KEY": pod.own_key,
        "CUDA_VERSION": CUDA,
        **({"RUNPOD_VOLUME_ID": mount["volumeId"]} if mount else {}),
        **({"RUNPOD_TCP_PORT_22": str(_public_port(pod, SSH))} if ssh_port else {}),
    }


def gpu_view(gpu: Gpu, *, availability: str | None) -> dict[str, object]:
    """`availability` is None where nobody asked for it."""
    price = float(gpu.price)
    stock: dict[str, object] = {}
    if availability is not None:
        places = [{"id": place, "name": place, "availability": availability} for place in DATA_CENTERS]
        stock = {
            "availability": availability,
            "dataCenters": places,
            "cudaVersions": [{"version": CUDA, "available": availability != "NONE"}],
        }
    return {
        "id": gpu.id,
        "name": gpu.short_name,
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": gpu.memory_gb,
        "secure": True,
        "community": True,
        "price": {"secure": price, "community": price},
        "maxCount": {"secure": 8, "community": 4},
        **stock,
    }


def volume_view(volume: NetworkVolume) -> dict[str, object]:
    return {
        "id": volume.id,
        "name": volume.name,
        "size": volume.size_gb,
        "dataCenter": volume.data_center,
        "type": "STANDARD",
    }


def amounts(cost: Decimal, *, gpu: bool) -> dict[str, float]:
    total = float(cost)
    return {
        "totalAmount": total,
        "gpuAmount": total if gpu else 0.0,
        "cpuAmount": 0.0 if gpu else total,
        "diskAmount": 0.0,
    }


def _compute(pod: FakePod) -> dict[str, object]:
    if pod.gpu_type is None:
        return {"cpu": {**objects(pod.body, "cpu"), "memory": MEMORY_PER_GPU_GB}}
    size = {"vcpuCount": VCPUS_PER_GPU * pod.gpu_count, "memory": MEMORY_PER_GPU_GB * pod.gpu_count}
    return {"gpu": {"id": pod.gpu_type, "count": pod.gpu_count, **size}}


def _runtime(pod: FakePod, now: float) -> dict[str, object]:
    uptime = 0 if pod.started is None or pod.exited is not None else int(now - pod.started)
    return {
        "uptime": uptime,
        "gpus": [{"util": 0, "memoryUtil": 0} for _ in range(pod.gpu_count)],
        "cpu": {"util": 1},
        "memory": {"util": 1},
        "ports": [
            _port(pod, port) for port in texts(pod.body, "ports") if port != SSH or not pod.fate.no_ssh
        ],
    }


def _port(pod: FakePod, port: str) -> dict[str, object]:
    number, kind = port.split("/")
    ip = "127.0.0.1" if kind == "tcp" else "100.65.0.1"
    return {"private": int(number), "public": _public_port(pod, port), "type": kind, "ip": ip}


def _public_port(pod: FakePod, port: str) -> int:
    return 32_768 + (pod.number * 31 + int(port.partition("/")[0])) % 28_000


def _ssh(pod: FakePod) -> Mapping[str, object]:
    reachable = pod.status is Status.RUNNING and SSH in texts(pod.body, "ports") and not pod.fate.no_ssh
    direct = _ssh_end("127.0.0.1", _public_port(pod, SSH), "root") if reachable else None
    placed = pod.status is not Status.PROVISIONING
    return {"proxy": _ssh_end("ssh.runpod.io", 22, f"{pod.id}-fake") if placed else None, "direct": direct}


def _ssh_end(host: str, port: int, username: str) -> dict[str, object]:
    command = f"ssh {username}@{host} -p {port}"
    return {"host": host, "port": port, "username": username, "command": command}
