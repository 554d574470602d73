"""Whether a ComfyUI can take jobs, and what it says of its machine."""

from collections.abc import Mapping
from dataclasses import replace

from herdsman.connectors.comfyui.api import OLDEST, Api, read_version
from herdsman.connectors.comfyui.shapes import as_number, as_object, as_text, item, one_line
from herdsman.connectors.comfyui.verdict import head_of
from herdsman.core.errors import HerdsmanError
from herdsman.core.service import Fitness

MB = 1024 * 1024


def read_fitness(api: Api) -> Fitness:
    """Never raises: what goes wrong is the fault."""
    try:
        found = _fitness(api.system_stats(), api.queue_remaining())
        return replace(found, working_on=head_of(api.queue())) if found.queued else found
    except HerdsmanError as error:
        return Fitness(fault=str(error))


def _fitness(stats: Mapping[str, object], queued: int | None) -> Fitness:
    version = as_text(as_object(stats.get("system")).get("comfyui_version"))
    # The first is the one that it works on.
    device = as_object(item(stats.get("devices"), 0))
    name = as_text(device.get("name"))
    return Fitness(
        fault=_fault(stats, version),
        version=version and one_line(version, 40),
        device=name and one_line(name, 100),
        vram_total_mb=_mb(device.get("vram_total")),
        vram_free_mb=_mb(device.get("vram_free")),
        queued=queued,
    )


def _fault(stats: Mapping[str, object], said: str | None) -> str | None:
    if "system" not in stats:
        return "what answers there is no ComfyUI: its /system_stats says nothing about a system"
    version = read_version(stats)
    if version is not None and version < OLDEST:
        oldest = ".".join(str(part) for part in OLDEST)
        return f"ComfyUI {said} is too old: {oldest} is the first that takes ids of our choice; update it"
    return None


def _mb(size: object) -> int | None:
    number = as_number(size)
    return None if number is None else int(number) // MB
