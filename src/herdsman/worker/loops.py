"""The old address of `herdsman.loops`, kept for one release."""

import warnings

from herdsman import loops as _loops
from herdsman.loops import *  # noqa: F403  (every public name, as before)

__all__ = _loops.__all__  # pyright: ignore[reportUnsupportedDunderAll]

warnings.warn("herdsman.worker.loops has moved: import from herdsman.loops", DeprecationWarning, stacklevel=2)
