"""When a worker has failed, and in which words."""

from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.fleet.actions import ConfirmTerminated, DrainIdleWorker, FailWorker, Note, RequeueJob
from herdsman.fleet.decide import decide
from herdsman.fleet.model import FleetPolicy, InstanceStatus
from herdsman.fleet.snapshot import WorkerSnapshot
from herdsman.jobs.model import FailureClass
from herdsman.states import WorkerStatus
from tests.support.fleets import NOW, a_job, a_snapshot, a_worker, an_instance, minutes, seconds

SPAWNING = WorkerStatus.SPAWNING


def failure_of(worker: WorkerSnapshot, *, queued: int = 0) -> str | None:
    actions = decide(a_snapshot(worker, queued=queued)).actions
    return next((action.reason.text for action in actions if isinstance(action, FailWorker)), None)


def test_silence_is_a_failure_only_while_jobs_wait() -> None:
    silent = a_worker(beat_age=minutes(6))
    assert failure_of(silent, queued=1) == "Heartbeat expired with tasks queued"
    assert failure_of(silent, queued=0) is None


def test_a_worker_that_never_beat_is_told_apart() -> None:
    assert failure_of(a_worker(beat_age=None), queued=1) == "No heartbeat received with tasks queued"


def test_silence_with_a_job_is_a_failure_whatever_the_queue() -> None:
    silent = a_worker(beat_age=minutes(6), job=a_job("j7"))
    assert failure_of(silent) == "Heartbeat expired while running task j7"


def test_a_silent_worker_that_nobody_needs_is_reaped_in_the_end() -> None:
    """P4: a dead idle machine must not be paid for ever."""
    for worker, code in (
        (a_worker(beat_age=timedelta(hours=3)), "FAILSAFE"),
        (a_worker(beat_age=minutes(6), absent_since=NOW - minutes(1)), "INSTANCE_GONE"),
    ):
        first = decide(a_snapshot(worker)).actions[0]
        assert isinstance(first, DrainIdleWorker)
        assert first.reason.code == code
    assert decide(a_snapshot(a_worker(beat_age=minutes(6)))).actions == ()


def test_a_job_without_progress_is_stuck() -> None:
    """Counted from the last progress; a job's own time limit wins when it is longer."""
    assert failure_of(a_worker(job=a_job("j9", age=minutes(6)))) == "Stuck task j9"
    assert failure_of(a_worker(job=a_job("j9", age=minutes(4)))) is None
    assert failure_of(a_worker(job=a_job("j9", age=minutes(6), timeout=minutes(30)))) is None


def test_stale_gpu_memory_warns_and_nothing_more() -> None:
    (action,) = decide(a_snapshot(a_worker(vram_at=NOW - seconds(200)))).actions
    assert isinstance(action, Note)
    assert action.reason.text == "Stale VRAM data (200s old)"


def test_evidence_of_a_broken_gpu_is_a_failure() -> None:
    assert failure_of(a_worker(gpu_fault="Xid 79")) == "GPU broken: Xid 79"


@pytest.mark.parametrize(
    ("worker", "instance", "expected"),
    [
        (
            a_worker(status=SPAWNING, age=minutes(6), beat_age=None),
            InstanceStatus.STARTING,
            "Spawning timeout",
        ),
        (a_worker(status=SPAWNING, age=minutes(6), beat_age=None), InstanceStatus.RUNNING, None),
        (
            a_worker(status=SPAWNING, age=minutes(31), beat_age=None),
            InstanceStatus.RUNNING,
            "No heartbeat since its machine runs",
        ),
        (
            a_worker(status=SPAWNING, age=minutes(21), ready=False),
            InstanceStatus.RUNNING,
            "Never became ready for jobs",
        ),
        (
            a_worker(status=SPAWNING, age=minutes(15), ready=False, beat_age=minutes(6)),
            InstanceStatus.RUNNING,
            "Fell silent during its start",
        ),
    ],
)
def test_each_step_of_a_start_has_its_own_limit(
    worker: WorkerSnapshot, instance: InstanceStatus, expected: str | None
) -> None:
    seen = a_snapshot(worker, instances=(an_instance(worker, instance),))
    failures = [action.reason.text for action in decide(seen).actions if isinstance(action, FailWorker)]
    assert failures == ([] if expected is None else [expected])


@pytest.mark.parametrize(("require_gpu", "expected"), [(True, ["No GPU detected"]), (False, [])])
def test_only_a_pool_that_requires_a_gpu_ends_a_worker_without_one(require_gpu: bool, expected: list[str]) -> None:
    worker = a_worker(status=SPAWNING, age=minutes(6), ready=False, gpu_seen=False)
    seen = a_snapshot(worker, policy=FleetPolicy(min_workers=0, require_gpu=require_gpu))
    failures = [action.reason.text for action in decide(seen).actions if isinstance(action, FailWorker)]
    assert failures == expected


def test_a_creation_of_unknown_outcome_fails_only_after_the_absence_window() -> None:
    """P2"""
    unknown = a_worker(status=SPAWNING, age=minutes(30), beat_age=None, instance_ref=None)
    lost = a_worker(status=SPAWNING, age=minutes(30), beat_age=None, instance_ref=None, absent_since=NOW - minutes(11))
    assert decide(a_snapshot(unknown, instances=())).actions == ()
    assert failure_of(lost) == "No Runpod ID"


def test_a_worker_that_alone_fails_its_jobs_is_replaced() -> None:
    """Where most of them fail, the jobs are to blame."""
    bad, good = a_worker("bad", failed_in_a_row=3), a_worker("good")
    (first,) = [each for each in decide(a_snapshot(bad, good)).actions if isinstance(each, FailWorker)]
    assert (first.worker_id, first.reason.code) == ("bad", "FAILING_TASKS")
    worse = a_worker("worse", failed_in_a_row=9)
    assert not [each for each in decide(a_snapshot(bad, worse, good)).actions if isinstance(each, FailWorker)]
    at_work = a_worker("bad", failed_in_a_row=3, job=a_job())
    assert failure_of(at_work) is None


def test_a_worker_that_lets_jobs_wait_is_worth_a_word() -> None:
    """J1: it may not know their types, so it is not ended for it."""
    idle = a_worker(idle_since=NOW - minutes(11))
    for queued, expected in ((1, ["GPU_READY_NOT_CLAIMING"]), (0, [])):
        actions = decide(a_snapshot(idle, queued=queued)).actions
        assert [each.reason.code for each in actions if isinstance(each, Note)] == expected
    assert failure_of(idle, queued=1) is None


def test_all_jobs_of_a_batch_go_back() -> None:
    broken = a_worker(gpu_fault="Xid 79", job=a_job("j1"), batch=(a_job("j2"), a_job("j3")))
    returned = [each.key.job_id for each in decide(a_snapshot(broken)).actions if isinstance(each, RequeueJob)]
    assert returned == ["j1", "j2", "j3"]


@pytest.mark.parametrize(
    ("heard", "kind"), [(minutes(6), FailureClass.INTERRUPTED), (minutes(4), FailureClass.WORKER_LOST)]
)
def test_a_job_whose_worker_died_in_an_outage_is_not_charged(heard: timedelta, kind: FailureClass) -> None:
    """P10: as where its claim expires; one that was heard after the outage is lost like any other."""
    broken = a_worker(gpu_fault="Xid 79", beat_age=heard, job=a_job(age=minutes(7)))
    seen = replace(a_snapshot(broken), beats_since=NOW - minutes(5))
    assert [each.kind for each in decide(seen).actions if isinstance(each, RequeueJob)] == [kind]


def test_a_machine_with_a_start_up_script_has_the_scripts_time() -> None:
    """SCRIPT_RUNNING_TIMEOUT_SEC: counted instead of the time to boot, shorter or longer."""
    policy = FleetPolicy(min_workers=0, boot_timeout=minutes(10), script_timeout=minutes(30))
    for age, code in ((minutes(29), None), (minutes(31), "SCRIPT_RUNNING_TIMEOUT")):
        booting = a_worker(status=SPAWNING, age=age, beat_age=None)
        found = decide(a_snapshot(booting, policy=policy)).actions
        assert next((each.reason.code for each in found if isinstance(each, FailWorker)), None) == code
    assert failure_of(a_worker(status=SPAWNING, age=minutes(31), beat_age=None)) == (
        "No heartbeat since its machine runs"
    )


def test_an_active_worker_that_never_becomes_ready_fails_in_the_end() -> None:
    """ACTIVE_INITIALIZING_MAX_SEC: it was promoted for its heartbeat, and says in each that it is not ready."""
    said = "Active, and still not ready for jobs"
    assert failure_of(a_worker(age=minutes(31), ready=False)) == said
    assert failure_of(a_worker(age=minutes(29), ready=False)) is None
    assert failure_of(a_worker(age=minutes(31), ready=True)) is None
    assert failure_of(a_worker(age=minutes(31), ready=None)) is None  # it never said anything about it
    assert failure_of(a_worker(age=minutes(31), ready=False, jobs_done=1)) is None


def after_an_outage(*workers: WorkerSnapshot, over_for: timedelta, queued: int = 0) -> list[str]:
    """The codes of what is done when heartbeats could be written again for so long."""
    seen = replace(a_snapshot(*workers, queued=queued), beats_since=NOW - over_for)
    return [each.reason.code for each in decide(seen).actions if not isinstance(each, Note)]


def test_an_outage_is_not_silence_of_workers() -> None:
    """P10: whole fleets were ended in the first cycle, and every job was charged a lost worker."""
    fleet = [
        a_worker("at-work", beat_age=minutes(7), job=a_job("j1", age=minutes(7))),
        a_worker("free", beat_age=minutes(7), idle_since=NOW - minutes(7)),
        a_worker("starts", SPAWNING, age=minutes(31), beat_age=minutes(7), ready=False),
        a_worker("booting", SPAWNING, age=minutes(31), beat_age=None),
        a_worker("listed", SPAWNING, age=minutes(31), beat_age=None, registered_at=NOW - minutes(7)),
    ]
    assert after_an_outage(*fleet, over_for=seconds(1), queued=5) == []
    assert after_an_outage(*fleet, over_for=-minutes(5), queued=5) == [], "what was promised lasts longer"


def test_silence_counts_from_the_end_of_an_outage() -> None:
    silent = a_worker(beat_age=minutes(20), job=a_job(age=minutes(20)))
    assert after_an_outage(silent, over_for=minutes(4)) == []
    assert after_an_outage(silent, over_for=minutes(6))[0] == "STALE_HEARTBEAT_ACTIVE_TASK"


def test_a_worker_that_had_nothing_to_do_in_an_outage_was_not_idle() -> None:
    idle = a_worker(idle_since=NOW - minutes(20))
    assert after_an_outage(idle, over_for=minutes(4)) == []
    assert after_an_outage(idle, over_for=minutes(6))[0] == "IDLE"


ABSENT = NOW - seconds(20)
LISTED = NOW - minutes(1)
EXACT = FleetPolicy(min_workers=0, confirm_window=timedelta(0), exact_listings=True)


@pytest.mark.parametrize(
    ("worker", "state", "ends"),
    [
        (a_worker(status=SPAWNING, age=minutes(1), beat_age=None), InstanceStatus.STOPPED, True),
        (a_worker(status=SPAWNING, age=minutes(1), beat_age=None), InstanceStatus.BROKEN, True),
        (a_worker(status=SPAWNING, age=minutes(1), beat_age=None), InstanceStatus.UNKNOWN, False),
        # A heartbeat knows better, until it is old.
        (a_worker(status=SPAWNING, age=minutes(1), ready=False), InstanceStatus.STOPPED, False),
        (a_worker(status=SPAWNING, age=minutes(3), beat_age=minutes(2)), InstanceStatus.STOPPED, True),
        (
            a_worker(status=SPAWNING, age=minutes(1), beat_age=None, absent_since=ABSENT, listed_at=LISTED),
            None,
            True,
        ),
        # P2, P7: what was never listed may be missing from a listing that lags.
        (a_worker(status=SPAWNING, age=minutes(1), beat_age=None, absent_since=ABSENT), None, False),
        (
            a_worker(status=SPAWNING, age=minutes(1), beat_age=seconds(30), ready=False, absent_since=ABSENT),
            None,
            True,
        ),
        (
            a_worker(status=SPAWNING, age=minutes(1), beat_age=seconds(5), ready=False, absent_since=ABSENT),
            None,
            False,
        ),
    ],
)
def test_a_worker_whose_machine_ends_during_its_start_is_failed_at_once(
    worker: WorkerSnapshot, state: InstanceStatus | None, ends: bool
) -> None:
    instances = () if state is None else (an_instance(worker, state),)
    found = [each.reason.code for each in decide(a_snapshot(worker, instances=instances)).actions]
    assert ("INSTANCE_ENDED" in found) is ends


def test_a_process_of_this_machine_that_is_not_listed_has_ended() -> None:
    """Its place was dead for five to ten minutes."""
    died = a_worker(status=SPAWNING, age=seconds(2), beat_age=None, idle_since=None, absent_since=NOW - seconds(1))
    first = decide(a_snapshot(died, policy=EXACT)).actions[0]
    assert isinstance(first, FailWorker)
    ended = replace(died, status=WorkerStatus.ERROR, end_asked_at=NOW - seconds(1))
    assert [type(each) for each in decide(a_snapshot(ended, policy=EXACT)).actions] == [ConfirmTerminated]


def test_an_active_worker_without_a_machine_holds_no_place_once_its_job_is_back() -> None:
    gone = a_worker(beat_age=seconds(30), absent_since=ABSENT)
    (first, *_) = decide(a_snapshot(gone, queued=1)).actions
    assert isinstance(first, DrainIdleWorker)
    assert first.reason.code == "INSTANCE_GONE"
    assert decide(a_snapshot(replace(gone, job=a_job()))).actions == (), "its claim runs out first"
    assert decide(a_snapshot(a_worker(beat_age=seconds(5), absent_since=ABSENT))).actions == (), "it beats"


def test_a_worker_that_registered_and_never_beats_holds_no_place() -> None:
    registered = a_worker(status=SPAWNING, age=minutes(5), beat_age=None, registered_at=NOW - seconds(91))
    assert failure_of(registered) == "Registered, and sent no heartbeat"
    assert failure_of(replace(registered, registered_at=NOW - seconds(89))) is None
    by_hand = a_worker(status=SPAWNING, age=seconds(91), beat_age=None, instance_name=None, instance_ref=None)
    assert failure_of(by_hand) == "Registered, and sent no heartbeat"
