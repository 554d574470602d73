"""How the life of a pod goes on by itself."""

from collections.abc import Callable
from datetime import timedelta

from herdsman.testing.runpod.faults import Fault, Faults
from herdsman.testing.runpod.pods import FakePod, Fate, Pace, Status

NOTICE = timedelta(seconds=5)


def draw_fate(faults: Faults, name: str) -> Fate:
    lag = faults.strikes(Fault.LISTING_LAG, name)
    told = faults.strikes(Fault.PREEMPTED, name)
    untold = faults.strikes(Fault.PREEMPTED_UNTOLD, name)
    preempted = told or untold
    return Fate(
        visible_after=lag.lasting if lag else timedelta(0),
        never_running=faults.strikes(Fault.NEVER_RUNNING, name) is not None,
        no_ssh=faults.strikes(Fault.NO_SSH, name) is not None,
        silent=faults.strikes(Fault.SILENT, name) is not None,
        crash_loop=faults.strikes(Fault.CRASH_LOOP, name) is not None,
        preempted_after=preempted.lasting if preempted else None,
        notice=NOTICE if told else None,
    )


def advance(pod: FakePod, now: float, pace: Pace, start: Callable[[FakePod], None]) -> None:
    """Bring the pod to where it is at `now`; `start` gives it a container."""
    _boot(pod, now, pace, start)
    if pod.status is Status.RUNNING:
        _keep_running(pod, now, pace, start)
    if pod.alive:
        _preempt(pod, now)


def stop(pod: FakePod, now: float, status: Status) -> None:
    """Compute ends here, and with it whatever runs in the container."""
    pod.enter(status, now)
    pod.started = pod.dies_at = None
    if pod.container is not None:
        pod.container.kill()
        pod.container = None


def _boot(pod: FakePod, now: float, pace: Pace, start: Callable[[FakePod], None]) -> None:
    placed = pod.entered + pace.provisioning.total_seconds()
    if pod.status is Status.PROVISIONING and now >= placed:
        pod.enter(Status.STARTING, placed)
    pulled = pod.entered + pace.starting.total_seconds()
    if pod.status is Status.STARTING and now >= pulled and not pod.fate.never_running:
        pod.enter(Status.RUNNING, pulled)
        pod.started = pulled
        start(pod)


def _keep_running(pod: FakePod, now: float, pace: Pace, start: Callable[[FakePod], None]) -> None:
    """A container that ends is started again: the pod stays RUNNING, and its uptime falls back."""
    if pod.container is None:
        # Without a process the loop is only told of.
        if (
            pod.fate.crash_loop
            and pod.started is not None
            and now - pod.started > pace.restart.total_seconds()
        ):
            pod.started = now
        return
    if not pod.container.ended():
        return
    if pod.exited is None:
        pod.exited = now
        pod.say("system", "container exited", now)
    elif now - pod.exited >= pace.restart.total_seconds():
        pod.container.kill()
        pod.started, pod.exited = now, None
        start(pod)


def _preempt(pod: FakePod, now: float) -> None:
    after, notice = pod.fate.preempted_after, pod.fate.notice
    if after is None or now < pod.created + after.total_seconds():
        return
    if pod.dies_at is None:
        told = pod.created + after.total_seconds()
        pod.dies_at = told + (notice.total_seconds() if notice else 0)
        if notice and pod.container is not None:
            pod.container.ask_to_stop()
    if now >= pod.dies_at:
        stop(pod, pod.dies_at, Status.EXITED)
