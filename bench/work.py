"""The work that is measured: the same jobs and results, whoever handles them."""

from collections.abc import Sequence
from typing import Protocol

from herdsman.ids import WorkerId
from herdsman.jobs.model import ClaimKey

KIND = "render"
PAYLOAD: dict[str, object] = {
    "prompt": "a lighthouse at the end of a long pier, heavy sea, evening light",
    "seed": 1234567,
    "steps": 30,
    "size": [1024, 1024],
    "guidance": 7.5,
}
RESULT: dict[str, object] = {"image": "renders/2f6c1d/0001.png", "seconds": 4.25, "seed": 1234567}

NOOP = "noop"
BATCH = "BENCH_BATCH"
"""The variable that tells the handlers of `bench.handlers` how many jobs to take at once."""

CLAIM_TTL_S = 30
WORKERS = tuple(WorkerId(f"worker-{number:03}") for number in range(100))


class Contender(Protocol):
    """Somebody who can run the queue. Each call is one transaction."""

    def submit(self, count: int) -> None: ...

    def claim(self, count: int) -> Sequence[ClaimKey]:
        """One job for each of the first `count` workers, with its payload decoded."""
        ...

    def complete(self, claims: Sequence[ClaimKey]) -> None: ...
