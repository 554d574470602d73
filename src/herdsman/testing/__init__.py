"""For our tests and for those of your programs: a local cluster, fakes, private servers, contract suites, a simulation."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from herdsman.testing.cluster import LocalCluster

    LocalHerd = LocalCluster

__all__ = ["LocalCluster", "LocalHerd"]


def __getattr__(name: str) -> Any:
    """Imported when asked for: the cluster needs the whole server, and the fakes do not."""
    if name == "LocalHerd":
        warnings.warn("herdsman.testing.LocalHerd is called LocalCluster now", DeprecationWarning, stacklevel=2)
    elif name != "LocalCluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("herdsman.testing.cluster").LocalCluster
