"""What has to fit together so that a job, and the GPU under it, has one holder at a time."""

from herdsman.settings.relation import Relation

CLAIMS: tuple[Relation, ...] = (
    Relation(
        name="claims survive lost heartbeats",
        left="4 * HEARTBEAT_INTERVAL_SEC",
        op="<=",
        right="CLAIM_TTL_SEC",
        check=lambda s: 4 * s.worker.heartbeat_interval_sec <= s.jobs.claim_ttl_sec,
        why="otherwise a few lost heartbeats take the job away from a worker that lives.",
    ),
    Relation(
        name="a worker stops before its job is given away",
        left="SELF_FENCE_SEC",
        op="<",
        right="CLAIM_TTL_SEC",
        check=lambda s: s.worker.self_fence_sec < s.jobs.claim_ttl_sec,
        why="otherwise a worker that is cut off still works when another one gets its job.",
    ),
    Relation(
        name="a worker does not stop between heartbeats",
        left="HEARTBEAT_INTERVAL_SEC",
        op="<",
        right="SELF_FENCE_SEC",
        check=lambda s: s.worker.heartbeat_interval_sec < s.worker.self_fence_sec,
        why="otherwise a worker stops its job before its next heartbeat is due.",
    ),
    Relation(
        name="retries grow towards their cap",
        left="RETRY_BACKOFF_BASE_SEC",
        op="<=",
        right="RETRY_BACKOFF_CAP_SEC",
        check=lambda s: s.jobs.retry_backoff_base_sec <= s.jobs.retry_backoff_cap_sec,
        why="otherwise the first retry waits longer than the longest wait.",
    ),
    Relation(
        name="stream entries outlive a heartbeat",
        left="ORCH_CLAIM_IDLE_MS",
        op=">",
        right="1000 * HEARTBEAT_INTERVAL_SEC",
        check=lambda s: s.streams.orch_claim_idle_ms > 1000 * s.worker.heartbeat_interval_sec,
        why="otherwise entries of healthy workers are looked at again and again, though never taken.",
        required=False,
    ),
)

LEASES: tuple[Relation, ...] = (
    Relation(
        name="the margin fits into a lease",
        left="LEASE_MARGIN_SEC",
        op="<",
        right="LEASE_TTL_SEC",
        check=lambda s: s.leases.lease_margin_sec < s.leases.lease_ttl_sec,
        why="otherwise a holder has to stop before its lease has begun.",
    ),
    Relation(
        name="a lease outlives a heartbeat",
        left="HEARTBEAT_INTERVAL_SEC + LEASE_MARGIN_SEC",
        op="<",
        right="LEASE_TTL_SEC",
        check=lambda s: s.worker.heartbeat_interval_sec + s.leases.lease_margin_sec < s.leases.lease_ttl_sec,
        why="otherwise a holder has to stop before the heartbeat that renews its lease.",
    ),
    Relation(
        name="the usual lease may be asked for",
        left="LEASE_TTL_SEC",
        op="<=",
        right="GPU_ORCHESTRATOR_LEASE_TTL",
        check=lambda s: s.leases.lease_ttl_sec <= s.leases.gpu_orchestrator_lease_ttl,
        why="otherwise a lease of the usual length is refused as too long.",
    ),
)
