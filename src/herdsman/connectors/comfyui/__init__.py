"""Jobs that are ComfyUI workflows, run on a ComfyUI that somebody else starts."""

from collections.abc import Mapping

from herdsman.connectors.comfyui.connector import ComfyUIConnector
from herdsman.connectors.comfyui.options import ComfyUIOptions
from herdsman.connectors.registry import Around, read_options

__all__ = ["ComfyUIConnector", "ComfyUIOptions", "open_connector"]


def open_connector(options: Mapping[str, object], around: Around) -> ComfyUIConnector:
    """The entry point: `options` holds the fields of `ComfyUIOptions`, headers as plain text."""
    return ComfyUIConnector(read_options(ComfyUIOptions, options), around)
