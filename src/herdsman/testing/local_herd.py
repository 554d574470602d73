"""The old address of `herdsman.testing.LocalCluster`, kept for one release."""

import warnings

from herdsman.testing.cluster import LocalCluster as LocalHerd

__all__ = ["LocalHerd"]

warnings.warn(
    "herdsman.testing.local_herd has moved: import LocalCluster from herdsman.testing", DeprecationWarning, stacklevel=2
)
