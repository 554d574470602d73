"""Where the files of jobs are kept, and how much of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultOptions:
    """Plain values only: a supervisor sends them to its handlers as JSON."""

    place: str
    """A directory, or `s3://bucket/prefix`."""
    max_file_mb: int = 1024
    max_job_mb: int = 4096
    allow_hosts: Sequence[str] = ()
    """Hosts that files may be read from though they are not public."""
    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_key_id: str | None = None
    s3_secret: str | None = field(default=None, repr=False)
