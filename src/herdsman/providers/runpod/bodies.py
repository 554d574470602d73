"""The request that creates a pod."""

from collections.abc import Mapping

from herdsman.providers.runpod.ladder import Candidate
from herdsman.providers.runpod.options import RunpodOptions
from herdsman.providers.runpod.startup import startup_fields


def create_body(
    options: RunpodOptions, candidate: Candidate, *, name: str, environment: Mapping[str, str]
) -> dict[str, object]:
    """`disk` and `gpu.count` are always in it: without them Runpod claims to be out of machines."""
    body: dict[str, object] = {
        "name": name,
        "image": options.image,
        "templateId": options.template_id,
        "cloud": options.cloud,
        "gpu": _gpu(options, candidate),
        "disk": options.container_disk_gb,
        "dataCenterIds": _places(options, candidate),
        "mounts": _mounts(options, candidate),
        "ports": list(options.ports),
        "env": dict(environment),
        **startup_fields(options),
    }
    return {field: value for field, value in body.items() if value not in (None, [], {})}


def _gpu(options: RunpodOptions, candidate: Candidate) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": candidate.gpu_type,
        "count": options.gpu_count,
        "minCudaVersion": options.min_cuda,
        "minRamPerGpu": candidate.memory_gb,
        "minVcpuCountPerGpu": options.min_vcpus,
    }
    return {field: value for field, value in fields.items() if value is not None}


def _places(options: RunpodOptions, candidate: Candidate) -> list[str]:
    """A pod must stand where its volume is; anything else would be refused."""
    if candidate.volume is not None:
        return [candidate.volume.data_center] if candidate.volume.data_center else []
    return list(options.data_centers)


def _mounts(options: RunpodOptions, candidate: Candidate) -> dict[str, object]:
    if candidate.volume is not None:
        return {"network": [{"volumeId": candidate.volume.id, "path": options.mount_path}]}
    if options.local_volume_gb is not None:
        return {"persistent": {"size": options.local_volume_gb, "path": options.mount_path}}
    return {}
