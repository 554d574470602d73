"""GPUs as they are reported: who may speak for one, whose its memory is, and when it is given out again."""

from datetime import timedelta
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.errors import InvalidRequest, NotFound
from herdsman.fleet.commands import move_worker
from herdsman.fleet.model import GpuDevice, GpuReport
from herdsman.ids import WorkerId
from herdsman.jobs.protocol import WorkerHeartbeat
from herdsman.jobs.worker_commands import record_heartbeat
from herdsman.leases.commands import clear_gpu, keep_lease, list_gpus, release_lease, report_gpus
from herdsman.leases.rules import Gpu
from herdsman.states import Reason, WorkerStatus
from tests.support.builders import a_worker, scalar
from tests.support.databases import MovingClock
from tests.support.gpus import TOTAL, a_device, a_lease, a_node, refused
from tests.support.worker_calls import beat

SECOND = timedelta(seconds=1)


def a_beat(services: Services, worker: WorkerId, *devices: GpuDevice, node: str | None = "n1", **given: Any) -> None:
    total = sum(each.total_mb for each in devices)
    report = GpuReport(
        ready=True,
        seen=True,
        vram_total_mb=min(total, 2**31 - 1),
        vram_used_mb=0,
        devices=devices,
        node=node,
        **given,
    )
    beat(services, worker, None, report)


def the_gpus(services: Services) -> list[Gpu]:
    return [gpu for gpu, _ in list_gpus(services, after=None, limit=100).gpus]


def the_gpu(services: Services) -> Gpu:
    (gpu,) = the_gpus(services)
    return gpu


def test_a_worker_reports_its_gpus_with_its_beat(services: Services) -> None:
    worker = a_worker(services)
    a_beat(services, worker, a_device(0, used_mb=3000, own_mb=1000), a_device(1))
    first, second = the_gpus(services)
    assert (first.node_id, first.index, first.worker_id) == ("n1", 0, worker)
    assert (first.total_mb, first.used_mb, first.outside_mb) == (TOTAL, 3000, 2000)
    assert second.index == 1


def test_a_worker_without_a_node_is_its_own(services: Services) -> None:
    worker = a_worker(services)
    a_beat(services, worker, a_device(), node=None)
    assert the_gpu(services).node_id == worker


def test_a_worker_that_cannot_tell_has_all_of_the_memory_itself(services: Services) -> None:
    worker = a_worker(services)
    a_beat(services, worker, a_device(used_mb=20_000))
    assert the_gpu(services).outside_mb == 0
    assert refused(services, 8000) == "memory_in_use", "what is in use is in use, whoever uses it"


def test_the_age_of_a_measurement_counts(services: Services) -> None:
    worker = a_worker(services)
    a_beat(services, worker, a_device(), vram_age=30 * SECOND)
    now = services.database.read(lambda tx: tx.now())
    assert timedelta(seconds=29) < now - the_gpu(services).measured_at < timedelta(seconds=40)


def test_a_quiet_gpu_is_written_down_now_and_then(services: Services, clock: MovingClock) -> None:
    worker = a_worker(services)
    a_beat(services, worker, a_device())
    first = the_gpu(services).measured_at
    clock.advance(5 * SECOND)
    a_beat(services, worker, a_device())
    assert the_gpu(services).measured_at == first
    a_beat(services, worker, a_device(used_mb=500))
    assert the_gpu(services).used_mb == 500
    clock.advance(16 * SECOND)
    a_beat(services, worker, a_device(used_mb=500))
    assert the_gpu(services).measured_at > first + 15 * SECOND


def test_x9_what_a_worker_says_is_bounded(services: Services) -> None:
    worker = a_worker(services)
    odd = [
        a_device(index=-5, uuid=f"G{number}\0{'x' * 200}", name="n" * 500, total_mb=10**15, used_mb=-3)
        for number in range(40)
    ]
    a_beat(services, worker, *odd, a_device(uuid=""))
    found = the_gpus(services)
    assert len(found) == 16
    assert {(gpu.index, gpu.total_mb, gpu.used_mb) for gpu in found} == {(0, 2**31 - 1, 0)}


def test_x9_a_worker_with_ever_new_gpus_fills_no_table(services: Services) -> None:
    worker = a_worker(services)
    for number in range(5):
        a_beat(services, worker, a_device(uuid=f"GPU-{number}"))
    assert [gpu.uuid for gpu in the_gpus(services)] == ["GPU-4"]
    assert scalar(services.database, "SELECT COUNT(*) FROM worker_gpus") == 1


def test_a_gpu_that_comes_back_goes_on_counting_its_leases(services: Services) -> None:
    worker = a_worker(services)
    a_beat(services, worker, a_device())
    release_lease(services, a_lease(services).token, who="ann")
    a_beat(services, worker, a_device(uuid="another"))
    a_beat(services, worker, a_device())
    assert a_lease(services, gpu_index=0, node="n1").seq in (1, 2)
    assert max(gpu.lease_seq for gpu in the_gpus(services) if gpu.uuid == "GPU-n1-0") >= 1


def test_x7_a_worker_elsewhere_cannot_take_over_a_gpu(services: Services, clock: MovingClock) -> None:
    honest, bad = a_worker(services, "honest"), a_worker(services, "bad")
    a_beat(services, honest, a_device(used_mb=9000), node="n1")
    a_beat(services, bad, a_device(used_mb=0, total_mb=10**6), node="elsewhere")
    assert (the_gpu(services).worker_id, the_gpu(services).total_mb) == ("honest", TOTAL)
    assert scalar(services.database, "SELECT COUNT(*) FROM worker_gpus WHERE worker_id = 'bad'") == 0
    clock.advance(61 * SECOND)
    a_beat(services, bad, a_device(), node="elsewhere")
    assert the_gpu(services).worker_id == "bad", "nobody else has told of it for a minute"


def test_two_workers_of_a_node_share_a_card_and_one_speaks_for_it(services: Services) -> None:
    one, two = a_worker(services, "one"), a_worker(services, "two")
    a_beat(services, one, a_device(used_mb=500))
    a_beat(services, two, a_device(used_mb=900))
    assert (the_gpu(services).worker_id, the_gpu(services).used_mb) == ("one", 500)
    assert scalar(services.database, "SELECT COUNT(*) FROM worker_gpus") == 2
    move_worker(services, one, WorkerStatus.ERROR, Reason.LOST)
    a_beat(services, two, a_device(used_mb=900))
    assert (the_gpu(services).worker_id, the_gpu(services).used_mb) == ("two", 900)


def test_a_worker_takes_over_from_the_report_of_its_node(services: Services) -> None:
    a_node(services, used_mb=100)
    worker = a_worker(services)
    a_beat(services, worker, a_device(used_mb=200))
    assert the_gpu(services).worker_id == worker
    assert report_gpus(services, "n1", [a_device(used_mb=300)]) == []
    assert the_gpu(services).used_mb == 200


def test_a_node_reports_no_more_than_its_share(services: Services) -> None:
    with pytest.raises(InvalidRequest, match="65 GPUs"):
        report_gpus(services, "n1", [a_device(index) for index in range(65)])


def test_a_gpu_that_nobody_measures_is_not_given_out(services: Services, clock: MovingClock) -> None:
    a_node(services)
    clock.advance(61 * SECOND)
    assert refused(services) == "gpu_silent"
    a_node(services)
    assert a_lease(services)


def test_an_older_look_that_comes_late_changes_nothing(services: Services) -> None:
    a_node(services, used_mb=700)
    report_gpus(services, "n1", [a_device(used_mb=0)], age=30 * SECOND)
    assert the_gpu(services).used_mb == 700


def test_l3_memory_left_behind_is_waited_for_then_quarantined_then_forgiven(
    services: Services, clock: MovingClock
) -> None:
    a_node(services)
    release_lease(services, a_lease(services, 8000, agent="ann").token, who="ann")
    clock.advance(5 * SECOND)
    report_gpus(services, "n1", [a_device(used_mb=8000, processes=((4711, 8000),))])
    assert refused(services) == "not_empty"
    assert the_gpu(services).quarantined_at is None
    clock.advance(6 * SECOND)
    report_gpus(services, "n1", [a_device(used_mb=8000, processes=((4711, 8000),))])
    gpu = the_gpu(services)
    assert gpu.quarantined_at is not None and gpu.quarantine_reason is not None
    for word in ("8000 MB", "ann", "4711"):
        assert word in gpu.quarantine_reason
    assert refused(services, 100) == "quarantined"
    clock.advance(5 * SECOND)
    a_node(services, used_mb=300)
    assert the_gpu(services).quarantined_at is None
    assert a_lease(services)


def test_l3_a_person_may_clear_a_gpu_and_its_memory_is_then_outsiders(services: Services, clock: MovingClock) -> None:
    a_node(services)
    release_lease(services, a_lease(services, 8000).token, who="ann")
    clock.advance(11 * SECOND)
    a_node(services, used_mb=8000)
    assert refused(services) == "quarantined"
    assert clear_gpu(services, "GPU-n1-0", who="eve").outside_mb == 8000
    assert a_lease(services, 16_000).memory_mb == 16_000
    a_node(services, used_mb=8000)
    assert the_gpu(services).quarantined_at is None
    with pytest.raises(NotFound):
        clear_gpu(services, "no-such-gpu", who="eve")


def test_outsiders_stay_known_while_a_holder_has_not_taken_its_memory(services: Services) -> None:
    a_node(services, used_mb=2000)
    a_lease(services, 8000)
    a_node(services, used_mb=2000)
    assert the_gpu(services).outside_mb == 2000
    a_node(services, used_mb=10_000)
    assert the_gpu(services).outside_mb == 2000
    a_node(services, used_mb=13_000)
    assert the_gpu(services).outside_mb == 5000


def test_a_gpu_is_listed_with_what_is_leased_on_it(services: Services) -> None:
    a_node(services, gpus=3)
    lease = a_lease(services, 5000)
    page = list_gpus(services, after=None, limit=2)
    assert [gpu.uuid for gpu, _ in page.gpus] == ["GPU-n1-0", "GPU-n1-1"] and page.next == "GPU-n1-1"
    rest = list_gpus(services, after=page.next, limit=2)
    leased = {gpu.uuid: mb for gpu, mb in (*page.gpus, *rest.gpus)}
    assert sum(leased.values()) == 5000 and leased[lease.gpu_uuid or ""] == 5000
    assert keep_lease(services, lease.token)


def test_a_beat_without_gpus_tells_of_none(services: Services) -> None:
    worker = a_worker(services)
    record_heartbeat(services, worker, WorkerHeartbeat(report=GpuReport(ready=True, seen=False)))
    assert the_gpus(services) == []
