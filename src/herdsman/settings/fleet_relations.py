"""What has to fit together so that workers are neither ended too early nor kept too long."""

from herdsman.settings.model import Origin, Settings
from herdsman.settings.relation import Relation

WORKERS: tuple[Relation, ...] = (
    Relation(
        name="a heartbeat is not overdue before it is due",
        left="HEARTBEAT_INTERVAL_SEC",
        op="<",
        right="HEARTBEAT_TIMEOUT_SEC",
        check=lambda s: s.worker.heartbeat_interval_sec < s.health.heartbeat_timeout_sec,
        why="otherwise healthy workers are ended (without a value of its own the timeout is GPU_IDLE_TIMEOUT_SEC).",
    ),
    Relation(
        name="the failsafe comes last",
        left="HEARTBEAT_TIMEOUT_SEC",
        op="<=",
        right="FAILSAFE_STALE_THRESHOLD_SEC",
        check=lambda s: s.health.heartbeat_timeout_sec <= s.health.failsafe_stale_threshold_sec,
        why="otherwise the last resort acts before the heartbeat check has.",
    ),
    Relation(
        name="stuck is longer than the work",
        left="TASK_STUCK_TIMEOUT_SEC",
        op=">=",
        right="MAX_PROCESSING_SEC",
        unless="MAX_PROCESSING_SEC is not set",
        check=lambda s: not _declared(s) or s.health.task_stuck_timeout_sec >= s.watchdog.max_processing_sec,
        why="otherwise a job that reports no progress is taken for stuck while it still works.",
        required=False,
    ),
    Relation(
        name="spare workers go sooner",
        left="GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC",
        op="<=",
        right="GPU_IDLE_TIMEOUT_SEC",
        check=lambda s: s.health.gpu_overcapacity_idle_timeout_sec <= s.health.gpu_idle_timeout_sec,
        why="otherwise a worker too many is kept longer than one that is wanted.",
        required=False,
    ),
)

MACHINES: tuple[Relation, ...] = (
    Relation(
        name="the floor is under the ceiling",
        left="MIN_ACTIVE_GPUS",
        op="<=",
        right="MAX_ACTIVE_GPUS",
        unless="MAX_ACTIVE_GPUS is 0",
        check=lambda s: (
            s.scaling.min_active_gpus <= s.scaling.max_active_gpus or not s.scaling.max_active_gpus
        ),
        why="otherwise no size of the fleet is right.",
    ),
    Relation(
        name="the pools' floor is under their ceiling",
        left="GPU_POOL_MIN_WARM",
        op="<=",
        right="GPU_POOL_MAX_TOTAL",
        check=lambda s: s.pools.gpu_pool_min_warm <= s.pools.gpu_pool_max_total,
        why="otherwise no number of pools is right.",
    ),
    Relation(
        name="a slow create is not taken for a failed one",
        left="PROVIDER_TIMEOUT_SEC",
        op="<",
        right="ABSENCE_WINDOW_SEC",
        check=lambda s: s.providers.provider_timeout_sec < s.providers.absence_window_sec,
        why="otherwise a machine may appear after its place has been given to another one.",
    ),
    Relation(
        name="starting ends before booting does",
        left="SPAWNING_TIMEOUT_SEC",
        op="<=",
        right="BOOT_TIMEOUT_SEC",
        check=lambda s: s.health.spawning_timeout_sec <= s.providers.boot_timeout_sec,
        why="otherwise a machine is ended before its worker has had its time to start.",
        required=False,
    ),
)

LEADERSHIP: tuple[Relation, ...] = (
    Relation(
        name="leadership survives lost renewals",
        left="4 * LEADER_RENEW_SEC",
        op="<=",
        right="LEADER_TTL_SEC",
        check=lambda s: 4 * s.leader.leader_renew_sec <= s.leader.leader_ttl_sec,
        why="otherwise a few lost renewals end the term of a leader that lives.",
    ),
    Relation(
        name="an outage is known before workers stop",
        left="LEADER_TTL_SEC + 2 * HEARTBEAT_INTERVAL_SEC",
        op="<=",
        right="SELF_FENCE_SEC",
        unless="OUTAGE_GRACE_SEC is 0",
        check=lambda s: (
            s.leader.outage_grace_sec == 0
            or s.leader.leader_ttl_sec + 2 * s.worker.heartbeat_interval_sec <= s.worker.self_fence_sec
        ),
        why="otherwise workers stop their jobs in an outage of the database before they can be told to go on.",
        required=False,
    ),
    Relation(
        name="followers look more often than a term lasts",
        left="GPU_ORCHESTRATOR_LEADER_LOOP_S",
        op="<=",
        right="LEADER_TTL_SEC",
        check=lambda s: s.leader.gpu_orchestrator_leader_loop_s <= s.leader.leader_ttl_sec,
        why="otherwise nobody leads for longer than it takes to know that the leader is gone.",
        required=False,
    ),
)


def _declared(settings: Settings) -> bool:
    """Whether somebody said how long work takes; our own guess is nothing to warn about."""
    return settings.origin("MAX_PROCESSING_SEC") is not Origin.DEFAULT
