"""The ids of jobs, workers and pools, and the names that stand for none given."""

from typing import NewType

JobId = NewType("JobId", str)
WorkerId = NewType("WorkerId", str)
PoolId = NewType("PoolId", str)
DEFAULT_POOL = PoolId("default")
DEFAULT_AGENT = "default"
