"""Where the files of jobs are kept: a directory, or an object store."""

from herdsman.core.result_options import ResultOptions
from herdsman.results.opening import open_store

__all__ = ["ResultOptions", "open_store"]
