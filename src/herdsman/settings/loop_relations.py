"""What has to fit together in a process that watches its own loops."""

from herdsman.settings.relation import Relation

LOOPS: tuple[Relation, ...] = (
    Relation(
        name="the watchdog spares a loop at work",
        left="WATCHDOG_THRESHOLD_SEC",
        op=">",
        right="WAIT_TIME_SEC + MAX_PROCESSING_SEC",
        check=lambda s: (
            s.watchdog.watchdog_threshold_sec > s.watchdog.wait_time_sec + s.watchdog.max_processing_sec
        ),
        why="otherwise a loop that waits and then works as long as it may is killed.",
    ),
    Relation(
        name="the watchdog looks often enough",
        left="WATCHDOG_INTERVAL_SEC",
        op="<",
        right="WATCHDOG_THRESHOLD_SEC / 3",
        check=lambda s: s.watchdog.watchdog_interval_sec < s.watchdog.watchdog_threshold_sec / 3,
        why="otherwise a stalled loop is noticed much later than the threshold says.",
    ),
    Relation(
        name="not ready comes before killed",
        left="READINESS_THRESHOLD_SEC",
        op="<=",
        right="WATCHDOG_THRESHOLD_SEC",
        check=lambda s: s.watchdog.readiness_threshold_sec <= s.watchdog.watchdog_threshold_sec,
        why="otherwise a process is killed before it was ever reported as not ready.",
    ),
    Relation(
        name="a stalled loop is killed before its message returns",
        left="VISIBILITY_TIMEOUT_SEC",
        op=">",
        right="WATCHDOG_THRESHOLD_SEC + WATCHDOG_INTERVAL_SEC",
        check=lambda s: (
            s.watchdog.visibility_timeout_sec
            > s.watchdog.watchdog_threshold_sec + s.watchdog.watchdog_interval_sec
        ),
        why="otherwise a message is delivered again while a stalled loop still holds it.",
    ),
    Relation(
        name="a message stays away for a stall after full work",
        left="VISIBILITY_TIMEOUT_SEC",
        op=">",
        right="WATCHDOG_THRESHOLD_SEC + MAX_PROCESSING_SEC",
        check=lambda s: (
            s.watchdog.visibility_timeout_sec
            > s.watchdog.watchdog_threshold_sec + s.watchdog.max_processing_sec
        ),
        why="otherwise a loop that beats while it works and then stalls may hold a message that is delivered again.",
        required=False,
    ),
)
