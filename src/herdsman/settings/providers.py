"""Where machines come from: what holds for every provider, this machine, and Runpod."""

from typing import Annotated, Literal

from platformdirs import user_state_path
from pydantic import Field, SecretStr

from herdsman.settings.kinds import (
    Count,
    DefaultText,
    Group,
    Kind,
    OptionalText,
    Percent,
    Positive,
    Seconds,
    Secret,
    SecretMap,
    Sizes,
    Text,
    Texts,
    WebUrl,
    plain,
    setting,
)

Label = Annotated[
    str | None,
    Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40),
    Kind("small letters and digits with single hyphens between them, at most 40", plain),
]
RunpodCloud = Annotated[Literal["SECURE", "COMMUNITY"], Kind("SECURE or COMMUNITY", plain)]


def _state_directory() -> str:
    return str(user_state_path("herdsman", appauthor=False))


class ProviderSettings(Group):
    """What holds for machines from every provider."""

    provider: Text = setting(
        "local", "Where workers run: local for processes on this machine, runpod, or the name of a plugin."
    )
    deployment_id: Label = setting(
        None, "Name of this installation, in the name of each machine; those of others are never touched."
    )
    provider_timeout_sec: Seconds = setting(30, "Seconds that a call to a provider may take.")
    boot_timeout_sec: Seconds = setting(
        600, "Seconds after which a machine without a first heartbeat is ended."
    )
    absence_window_sec: Seconds = setting(
        600, "Seconds that a machine must be missing from listings before it counts as gone."
    )
    orphan_grace_sec: Seconds = setting(
        60, "Seconds that a machine of ours must be listed without a worker that owns it before it is ended."
    )


class LocalSettings(Group):
    """Workers that are processes on this machine."""

    fake_gpus: Count = setting(
        0, "GPUs to pretend that there are; 0 uses the real ones, one for each worker."
    )
    local_state_dir: Annotated[Text, DefaultText("USER_STATE_DIRECTORY/herdsman")] = Field(
        default_factory=_state_directory,
        description="Directory that remembers which processes were started, and holds their logs.",
    )


class RunpodSettings(Group):
    """Machines rented from Runpod."""

    runpod_api_key: Secret = setting(None, "Key of the Runpod account.")
    runpod_api_url: WebUrl = setting("https://api.runpod.io/v2", "Address of Runpod's REST API.")
    runpod_gpu_type: OptionalText = setting(None, "Kind of GPU that is rented.")
    runpod_gpu_types: Texts = setting(
        (), "Kinds of GPU to ask for, in this order; in place of RUNPOD_GPU_TYPE."
    )
    runpod_cloud: RunpodCloud = setting("SECURE", "Runpod's own machines, or others' too.")
    runpod_data_centers: Texts = setting((), "Data centers that a pod may be in; without them, all.")
    runpod_worker_image: OptionalText = setting(None, "Container image that a pod runs.")
    runpod_template_id: OptionalText = setting(None, "Template that a pod is made from.")
    runpod_name_prefix: Text = setting("gpu", "What the name of a pod begins with.")
    runpod_env_vars: SecretMap = Field(
        default_factory=dict[str, SecretStr], description="More variables for the environment of a pod."
    )
    runpod_ports: Texts = setting((), "Ports of a pod that are opened, such as 22/tcp or 8188/http.")
    runpod_activation: OptionalText = setting(
        None, "Shell commands, one on each line, to run in the volume before the worker starts."
    )

    runpod_storage_name: OptionalText = setting(None, "Name of the network volume to attach.")
    runpod_storage_volumes: Texts = setting((), "Network volumes to try, in this order.")
    runpod_volume_mount_path: Text = setting("/workspace", "Where the volume is mounted in a pod.")
    runpod_disk_size_gb: Positive = setting(200, "Size of a pod's volume in gigabytes.")
    runpod_container_disk_gb: Positive = setting(200, "Size of a pod's own disk in gigabytes.")
    runpod_min_vcpu_count: Positive = setting(8, "Fewest virtual processors of a pod.")
    runpod_min_memory_gb: Positive = setting(32, "Least memory of a pod in gigabytes.")
    runpod_ram_tiers: Sizes = setting(
        (72, 60, 48, 32, 16), "Sizes of memory in gigabytes to ask for, in this order."
    )

    storage_min_free_gb: Count = setting(
        50, "A network volume on which workers have fewer gigabytes free than this is grown."
    )
    storage_max_percent_used: Percent = setting(
        85, "A network volume that is fuller than this percentage is grown."
    )
    storage_expansion_increment_gb: Positive = setting(
        50, "Gigabytes by which a network volume is grown, once it is seen to be full."
    )
