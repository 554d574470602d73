"""The names that people type and the values they get when they type nothing."""

from datetime import timedelta
from pathlib import Path

import pytest

from herdsman.errors import InvalidSettings
from herdsman.jobs.model import JobPolicy
from herdsman.settings import Settings, advice, load_settings, rows
from herdsman.settings.model import CATALOGUE

NOWHERE = Path("/nonexistent")

SCALING = {
    "MIN_ACTIVE_GPUS": 2,
    "MAX_ACTIVE_GPUS": 10,
    "TASKS_PER_GPU_THRESHOLD": 3,
    "GPU_IDLE_TIMEOUT_SEC": 300,
    "TASK_STUCK_TIMEOUT_SEC": 300,
    "SPAWNING_TIMEOUT_SEC": 300,
    "GPU_HEALTH_CHECK_TIMEOUT_SEC": 120,
    "GRACEFUL_SHUTDOWN_TIMEOUT_SEC": 600,
    "ORCHESTRATOR_POLL_SEC": 30,
    "AUTO_START_WORKER_PROCESS": True,
    "SCALING_POLICY": "threshold",
    "SHADOW_SCALING_POLICY": "",
    "TARGET_WAIT_SEC": 120,
    "PROMOTION_POLICY": "ready",
    "REQUIRE_GPU": None,
    "HEARTBEAT_TIMEOUT_SEC": 300,
    "MAX_ATTEMPTS": 3,
}
FLEET = {
    "MACHINES_TO_KEEP_IDLE": 0,
    "GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC": 30,
    "SCALE_UP_MULTIPLIER": 1.0,
    "SCALE_DOWN_MULTIPLIER": 0.9,
    "MIN_SCALING_INTERVAL_SEC": 45,
    "SPAWNING_GRACE_PERIOD_SEC": 180,
    "SCALE_DOWN_GRACE_PERIOD_SEC": 60,
    "SCRIPT_RUNNING_TIMEOUT_SEC": 1800,
    "STARTUP_GRACE_PERIOD_SEC": 1200,
    "READY_NOT_CLAIMING_TIMEOUT_SEC": 600,
    "GPU_NOT_DETECTED_TIMEOUT_SEC": 300,
    "HEARTBEAT_PROMOTION_THRESHOLD_SEC": 90,
    "ACTIVE_INITIALIZING_MAX_SEC": 1800,
    "ERROR_CLEANUP_GRACE_PERIOD_SEC": 0,  # not 600: a machine that failed would be paid for
    "FAILSAFE_STALE_THRESHOLD_SEC": 7200,
    "MAX_TASK_WAIT_MINUTES": 5,
}
MACHINES = {
    "MAX_WORKER_FAILURE_RATE": 0.8,
    "FAILURE_WINDOW_MINUTES": 5,
    "MIN_WORKERS_FOR_RATE_CHECK": 5,
    "MAX_CONSECUTIVE_TASK_FAILURES": 3,
    "TASK_FAILURE_WINDOW_MINUTES": 30,
    "RUNPOD_API_KEY": "not set",
    "RUNPOD_GPU_TYPE": None,
    "RUNPOD_WORKER_IMAGE": None,
    "RUNPOD_TEMPLATE_ID": None,
    "RUNPOD_STORAGE_NAME": None,
    "RUNPOD_STORAGE_VOLUMES": [],
    "RUNPOD_VOLUME_MOUNT_PATH": "/workspace",
    "RUNPOD_DISK_SIZE_GB": 200,
    "RUNPOD_CONTAINER_DISK_GB": 200,
    "RUNPOD_MIN_VCPU_COUNT": 8,
    "RUNPOD_MIN_MEMORY_GB": 32,
    "RUNPOD_RAM_TIERS": [72, 60, 48, 32, 16],
    "RUNPOD_ENV_VARS": "not set",
    "RUNPOD_NAME_PREFIX": "gpu",
    "STORAGE_MIN_FREE_GB": 50,
    "STORAGE_MAX_PERCENT_USED": 85,
    "STORAGE_EXPANSION_INCREMENT_GB": 50,
    "DEPLOYMENT_ID": None,
    "PROVIDER": "local",
    "FAKE_GPUS": 0,
    "WORKER_ID": None,
    "RUNPOD_API_URL": "https://api.runpod.io/v2",
    "RUNPOD_GPU_TYPES": [],
    "RUNPOD_CLOUD": "SECURE",
    "RUNPOD_DATA_CENTERS": [],
    "RUNPOD_PORTS": [],
    "RUNPOD_ACTIVATION": None,
}
SERVICES = {
    "LOG_LEVEL": "info",
    "LOG_FORMAT": "auto",
    "LOG_FILE": None,
    "ENABLE_DB_LOGGING": False,
    "DB_LOG_LEVEL": "info",
    "DB_LOG_BATCH_SIZE": 50,
    "DB_LOG_FLUSH_INTERVAL": 5,
    "DB_LOGGING_REQUIRED": False,
    "ORCHESTRATOR_INSTANCE_ID": None,
    "ADMIN_API_KEY": "not set",
    "ORCH_CLAIM_IDLE_MS": 60000,
    "ORCH_RECLAIM_INTERVAL_S": 30,
    "ORCH_STREAM_PREFIX": "stream:orchestrator",
    "GPU_ORCHESTRATOR_LEADER_LOCK": "gpu_orchestrator_leader",
    "GPU_ORCHESTRATOR_LEADER_LOOP_S": 2,
    "GPU_ORCHESTRATOR_LEASE_TTL": 3600,
    "GPU_POOL_MIN_WARM": 0,
    "GPU_POOL_MAX_TOTAL": 8,
    "GPU_POOL_IDLE_TIMEOUT_S": 300,
    "GPU_POOL_POLICY_PERIOD_S": 10,
    "SAFE_MODE": False,
    "ENABLE_NVML": True,
    "METRICS_PUSHGATEWAY_URL": None,
    "STRICT_MODEL_STORE": False,
    "WORKER_HEALTH_CHECK_INTERVAL_MS": 30000,
    "WORKER_WEBSOCKET_INACTIVITY_TIMEOUT_MS": 30000,
    "WORKER_SERVICE_PATIENCE_SEC": 120,
    "WORKER_SERVICE_STALL_SEC": 900,
    "COMFYUI_URL": None,
    "WORKER_CONNECTORS_FILE": None,
}
# The defaults that the invariants rely on.
PARAMETERS = {
    "HEARTBEAT_INTERVAL_SEC": 5,
    "CLAIM_TTL_SEC": 30,
    "SELF_FENCE_SEC": 25,
    "SWEEP_INTERVAL_SEC": 5,
    "LEADER_RENEW_SEC": 2,
    "LEADER_TTL_SEC": 10,
    "OUTAGE_GRACE_SEC": 1800,
    "ABSENCE_WINDOW_SEC": 600,
    "ORPHAN_GRACE_SEC": 60,
    "BOOT_TIMEOUT_SEC": 600,
    "LEASE_TTL_SEC": 60,
    "LEASE_MARGIN_SEC": 5,
    "LEASE_MODE": "on",
    "LEASE_RESERVE_MB": 0,
    "LEASE_TOLERANCE_MB": 512,
    "LEASE_SILENT_SEC": 60,
    "LEASE_EMPTY_SEC": 10,
    "CANCEL_GRACE_SEC": 30,
    "SQL_TIMEOUT_SEC": 10,
    "SQL_POOL_SIZE": 10,
    "PROVIDER_TIMEOUT_SEC": 30,
    "SQL_POLL_SEC": 1,
    "SQL_PREPARE": True,
    "STREAM_RESYNC_SEC": 10,
    "ORCH_INGEST": False,
    "ORCH_INGEST_AGENT": "ingest",
    "WAIT_TIME_SEC": 30,
    "MAX_PROCESSING_SEC": 600,
    "WATCHDOG_THRESHOLD_SEC": 720,
    "WATCHDOG_INTERVAL_SEC": 60,
    "READINESS_THRESHOLD_SEC": 360,
    "VISIBILITY_TIMEOUT_SEC": 1800,
    "JOB_RETENTION_DAYS": 30,
    "AUDIT_RETENTION_DAYS": 90,
    "REPLAY_DAYS": 7,
    "MAX_PAYLOAD_BYTES": 1_048_576,
    "MAX_RESULT_BYTES": 1_048_576,
    "RETRY_BACKOFF_BASE_SEC": 5,
    "RETRY_BACKOFF_CAP_SEC": 300,
    "MAX_INTERRUPTIONS": 20,
    "MAX_WORKER_LOSSES": 2,
    "PRIORITY_STEP_SEC": 60,
    "MAX_CREATES_PER_HOUR": 120,
    "MAX_COST_PER_HOUR_USD": None,
    "BUDGET_PER_HOUR_USD": None,
    "BUDGET_PER_DAY_USD": None,
}
# How workers and people reach the control plane, and how a worker behaves.
REACHING: dict[str, object] = {
    "API_HOST": "127.0.0.1",
    "API_PORT": 8765,
    "API_URL": None,
    "API_TOKEN": "not set",
    "API_ALLOWED_HOSTS": [],
    "API_TLS_CERTIFICATE": None,
    "API_TLS_KEY": None,
    "API_BEHIND_PROXY": False,
    "API_PROXIES": [],
    "API_MAX_BODY_BYTES": 1_114_112,
    "API_MAX_STREAMS": 1000,
    "API_MAX_STREAMS_PER_TOKEN": 50,
    "API_MAX_STREAMS_PER_ADDRESS": 200,
    "TOKEN_PEPPER": "not set",
    "WORKER_TOKEN_TTL_SEC": 86_400,
    "BOOTSTRAP_TOKEN_TTL_SEC": 1800,
}
WORKING: dict[str, object] = {
    "BOOTSTRAP_TOKEN": "not set",
    "WORKER_NODE_ID": None,
    "WORKER_START_COMMAND": None,
    "WORKER_MODULES": [],
    "WORKER_HANDLERS": [],
    "WORKER_EXEC": None,
    "WORKER_MAX_JOBS": 0,
    "WORKER_PREFETCH": 64,
    "WORKER_UNOWNED_SEC": 900,
    "WORKER_MAX_LIFETIME_SEC": 0,
    "WORKER_MIN_FREE_DISK_MB": 0,
    "WORKER_MIN_FREE_MEMORY_MB": 0,
    "WORKER_HEALTH_PORT": 0,
    "WORKER_HEALTH_HOST": "127.0.0.1",
}
# Where the files of jobs are kept.
RESULTS: dict[str, object] = {
    "RESULT_STORE": None,
    "RESULT_MAX_FILE_MB": 1024,
    "RESULT_MAX_JOB_MB": 4096,
    "RESULT_ALLOW_HOSTS": [],
    "RESULT_S3_ENDPOINT": None,
    "RESULT_S3_REGION": None,
    "RESULT_S3_KEY_ID": None,
    "RESULT_S3_SECRET": "not set",
}
CONTRACT: dict[str, object] = {
    **SCALING,
    **FLEET,
    **MACHINES,
    **SERVICES,
    **PARAMETERS,
    **REACHING,
    **WORKING,
    **RESULTS,
}
NUMBERS = [each.name for each in CATALOGUE.values() if type(each.default(Settings())) in (int, float)]


@pytest.mark.parametrize(("name", "default"), CONTRACT.items())
def test_every_name_of_the_contract_has_its_default(name: str, default: object) -> None:
    row = next(row for row in rows(load_settings({}, NOWHERE)) if row.name == name)
    assert (row.value, row.default, row.origin) == (default, default, "default")
    assert type(row.value) is not float or not row.value.is_integer()


def test_no_setting_exists_that_the_contract_does_not_know() -> None:
    assert set(CATALOGUE) - set(CONTRACT) == {"DATABASE_URL", "LOCAL_STATE_DIR", "REDIS_URL"}


def test_the_defaults_fit_together_and_call_for_no_warning() -> None:
    assert advice(load_settings({}, NOWHERE)) == ()


def test_every_setting_has_one_sentence_that_says_what_it_is() -> None:
    for setting in CATALOGUE.values():
        assert setting.description.endswith("."), setting.name
        assert setting.description.count(". ") == 0, setting.name


def test_groups_and_settings_never_share_a_name() -> None:
    """Otherwise a table of `herdsman.toml` could mean either."""
    assert {each.group for each in CATALOGUE.values()}.isdisjoint(each.key for each in CATALOGUE.values())


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "many", "1e30"])
def test_numbers_that_make_no_sense_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings({name: value}, NOWHERE)
    assert str(refused.value).startswith(f"{name} must be a")
    assert f"but is {value} in the environment." in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_switch_is_no_number(tmp_path: Path) -> None:
    (tmp_path / "herdsman.toml").write_text("min_active_gpus = true")
    with pytest.raises(InvalidSettings, match="min_active_gpus must be a whole number"):
        load_settings({}, tmp_path)


def test_the_heartbeat_timeout_follows_the_idle_timeout_unless_it_is_set() -> None:
    """Both documents hold at their defaults."""
    follows = load_settings({"GPU_IDLE_TIMEOUT_SEC": "900"}, NOWHERE)
    assert follows.health.heartbeat_timeout_sec == 900
    own = load_settings({"GPU_IDLE_TIMEOUT_SEC": "900", "HEARTBEAT_TIMEOUT_SEC": "60"}, NOWHERE)
    assert own.health.heartbeat_timeout_sec == 60


def test_a_default_that_follows_another_setting_is_shown_as_it_is() -> None:
    env = {"GPU_IDLE_TIMEOUT_SEC": "900", "ORCHESTRATOR_POLL_SEC": "50", "WATCHDOG_THRESHOLD_SEC": "1000"}
    shown = {row.name: row for row in rows(load_settings(env, NOWHERE))}
    assert shown["HEARTBEAT_TIMEOUT_SEC"].value == shown["HEARTBEAT_TIMEOUT_SEC"].default == 900
    assert shown["HEARTBEAT_PROMOTION_THRESHOLD_SEC"].value == 150
    assert shown["READINESS_THRESHOLD_SEC"].value == 500
    assert all(row.value == row.default for row in shown.values() if row.origin == "default")


def test_a_wrong_value_that_others_follow_is_reported_once() -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings({"GPU_IDLE_TIMEOUT_SEC": "soon"}, NOWHERE)
    assert str(refused.value).count("\n") == 0
    assert "HEARTBEAT_TIMEOUT_SEC" not in str(refused.value)


def test_all_problems_are_told_at_once_one_line_each() -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings({"MIN_ACTIVE_GPUS": "x", "LOG_LEVEL": "loud", "HERDSMAN_NOPE": "1"}, NOWHERE)
    assert [line.split()[0] for line in str(refused.value).splitlines()] == [
        "HERDSMAN_NOPE",
        "MIN_ACTIVE_GPUS",
        "LOG_LEVEL",
    ]


def test_job_settings_become_the_policy_of_the_core() -> None:
    assert Settings().jobs.policy() == JobPolicy()
    env = {"JOB_RETENTION_DAYS": "0", "AUDIT_RETENTION_DAYS": "7", "RETRY_BACKOFF_BASE_SEC": "0.5"}
    policy = load_settings({**env, "MAX_ATTEMPTS": "9", "MAX_WORKER_LOSSES": "4"}, NOWHERE).jobs.policy()
    assert policy.job_retention is None
    assert policy.audit_retention == timedelta(days=7)
    assert policy.retry.base == timedelta(milliseconds=500)
    assert (policy.max_attempts, policy.retry.max_worker_losses) == (9, 4)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().jobs.max_attempts = 5  # pyright: ignore[reportAttributeAccessIssue]
