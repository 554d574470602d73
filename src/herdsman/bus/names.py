"""What streams, groups and keys are called. The names are public: people look at them with redis-cli."""

from dataclasses import dataclass

from herdsman.core.model import PoolId


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    group: str


@dataclass(frozen=True, slots=True)
class Names:
    prefix: str = "stream:orchestrator"

    @property
    def jobs(self) -> Stream:
        return Stream(f"{self.prefix}:inference_jobs", "cg:inference")

    def jobs_of(self, pool: PoolId) -> Stream:
        """Of a pool that shares its stream with nobody."""
        return Stream(f"{self.jobs.name}:{pool}", f"{self.jobs.group}:{pool}")

    @property
    def ingest(self) -> Stream:
        return Stream(f"{self.prefix}:ingest_events", "cg:ingest")

    @property
    def preloads(self) -> Stream:
        return Stream(f"{self.prefix}:preloads", "cg:preloads:workers")

    @property
    def control(self) -> str:
        """Every replica reads all of it, so it has no group."""
        return f"{self.prefix}:control"

    @property
    def dead(self) -> str:
        return f"{self.prefix}:dlq"

    def told(self, job_id: str, version: int) -> str:
        """Is there while it is known that this end of the job was announced."""
        return f"{self.dead}:told:{job_id}:{version}"


def job_key(job_id: str) -> str:
    """The hash that mirrors a job."""
    return f"job:{job_id}"
