"""What may become of a pod after it was created, as the provider shows it."""

from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from herdsman.fleet.model import InstanceRef, InstanceStatus
from herdsman.providers.runpod import RunpodProvider
from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod import FakeRunpod, Fault, Pace
from tests.support.runpod import KEY, L4, a_provider, a_request

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fake(clock: ManualClock) -> Iterator[FakeRunpod]:
    """Nothing runs in its pods, and its time stands still unless it is moved."""
    with FakeRunpod(key=KEY, clock=clock, run_commands=False) as fake:
        yield fake


@pytest.fixture
def provider(fake: FakeRunpod) -> RunpodProvider:
    return a_provider(fake)


def test_a_pod_without_gpus_says_so(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.ZERO_GPU)
    # Off the specification, as the real one is when this happens.
    instance = a_provider(fake).spawn(a_request())
    assert (instance.gpu_type, instance.gpu_count) == (L4, 0)


def test_a_pod_may_never_run(fake: FakeRunpod, provider: RunpodProvider, clock: ManualClock) -> None:
    fake.faults.turn_on(Fault.NEVER_RUNNING)
    instance = provider.spawn(a_request())
    clock.advance(timedelta(hours=1))
    assert state(provider, instance.ref) is InstanceStatus.STARTING
    assert fake.ledger.cost > 0


def test_a_pod_may_run_without_ssh(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.NO_SSH, times=1)
    provider = a_provider(fake, ports=("22/tcp", "8188/http"))
    unreachable, reachable = provider.spawn(a_request()), provider.spawn(a_request())
    assert state(provider, unreachable.ref) is InstanceStatus.STARTING
    assert state(provider, reachable.ref) is InstanceStatus.RUNNING


@pytest.mark.parametrize("fault", [Fault.PREEMPTED, Fault.PREEMPTED_UNTOLD])
def test_a_preempted_pod_is_stopped(
    fault: Fault, fake: FakeRunpod, provider: RunpodProvider, clock: ManualClock
) -> None:
    fake.faults.turn_on(fault, lasting=60 * SECOND)
    instance = provider.spawn(a_request())
    clock.advance(59 * SECOND)
    assert state(provider, instance.ref) is InstanceStatus.RUNNING
    clock.advance(7 * SECOND)
    assert state(provider, instance.ref) is InstanceStatus.STOPPED
    (life,) = fake.ledger.pods
    (alive,) = life.lives
    assert alive[1] is not None
    assert (alive[1] - alive[0]).total_seconds() == (65 if fault is Fault.PREEMPTED else 60)


def test_a_deleted_pod_that_is_still_shown_is_gone(clock: ManualClock) -> None:
    with FakeRunpod(key=KEY, clock=clock, pace=Pace(tombstone=60 * SECOND)) as fake:
        provider = a_provider(fake)
        instance = provider.spawn(a_request())
        provider.terminate(instance.ref)
        shown = httpx.get(f"{fake.url}/pods", headers={"Authorization": f"Bearer {KEY}"}).json()["pods"]
        assert [pod["status"] for pod in shown] == ["TERMINATED"]
        assert provider.list_instances() == []
        assert provider.find(instance.ref) is None


def state(provider: RunpodProvider, ref: InstanceRef) -> InstanceStatus:
    found = provider.find(ref)
    assert found is not None
    return found.status
