"""A connector for any service that speaks JSON over HTTP: the operator says where its answers stand."""

from collections.abc import Mapping

from herdsman.connectors.http.connector import HttpConnector
from herdsman.connectors.http.options import HttpOptions
from herdsman.connectors.registry import Around, read_options

__all__ = ["HttpConnector", "HttpOptions", "open_connector"]


def open_connector(options: Mapping[str, object], around: Around) -> HttpConnector:
    return HttpConnector(read_options(HttpOptions, options), around)
