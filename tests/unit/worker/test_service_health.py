"""What a supervisor knows of the services of its jobs, and tells with its beats."""

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

from herdsman.connectors.registry import Around, ConnectorManager
from herdsman.fleet.model import GpuReport
from herdsman.jobs.protocol import Fitness
from herdsman.ports import Clock, Connector, SystemClock
from herdsman.results.options import ResultOptions
from herdsman.worker.health import UNASKED, ServiceHealth
from herdsman.worker.service_run import Outside, Watching, read_outside
from tests.support.memory_results import MemoryResults
from tests.unit.worker.fake_service import Hand

WELL = Fitness(version="0.7.0", vram_total_mb=24_000, vram_free_mb=20_000)
ILL = Fitness(fault="nobody answers at http://127.0.0.1:8188")


@dataclass
class Answering:
    says: list[Fitness] = field(default_factory=list[Fitness])

    def fitness(self) -> Fitness:
        return self.says.pop(0) if len(self.says) > 1 else self.says[0]


@dataclass(kw_only=True)
class Only(ConnectorManager):
    only: Connector

    def get(self, job_type: str) -> Connector:  # noqa: ARG002
        return self.only


def standing(*says: Fitness, clock: Clock | None = None, said: list[str] | None = None) -> ServiceHealth:
    manager = Only(
        services={"comfyui": {"connector": "comfyui"}},
        around=Around(clock=clock or SystemClock(), results=MemoryResults()),
        only=cast("Connector", Answering(list(says))),
    )
    say = ([] if said is None else said).append
    return ServiceHealth(manager=manager, interval=timedelta(seconds=5), stall=timedelta(seconds=900), say=say)


def test_a_service_that_was_not_asked_yet_takes_no_jobs() -> None:
    assert standing(WELL).unfit() == {"comfyui": UNASKED}


def test_a_service_takes_jobs_while_it_is_well() -> None:
    service = standing(WELL, ILL, WELL)
    seen: list[dict[str, str]] = []
    for _ in range(3):
        service.look()
        seen.append(dict(service.unfit()))
    assert seen == [{}, {"comfyui": ILL.fault}, {}]


def test_the_memory_that_a_service_tells_is_told_where_no_driver_can_be_asked() -> None:
    service = standing(WELL)
    service.look()
    seen = service.seen_by(lambda: GpuReport(ready=True, seen=False))()
    assert (seen.seen, seen.vram_total_mb, seen.vram_used_mb) == (True, 24_000, 4_000)


def test_what_the_driver_says_goes_before_what_a_service_says() -> None:
    service = standing(WELL)
    service.look()
    own = GpuReport(ready=True, seen=True, vram_total_mb=80_000, vram_used_mb=1)
    assert service.seen_by(lambda: own)() == own


def test_a_service_that_tells_no_memory_changes_nothing() -> None:
    service = standing(ILL)
    service.look()
    blind = GpuReport(ready=True, seen=None)
    assert service.seen_by(lambda: blind)() == blind


def test_what_a_handler_s_process_is_told_arrives_whole() -> None:
    services: dict[str, Any] = {"comfyui": {"connector": "comfyui", "headers": {"authorization": "hush"}}}
    told = Outside(
        services=services,
        results=ResultOptions(place="/somewhere", allow_hosts=("a.example",)),
        watching=Watching(stall=timedelta(minutes=3)),
    )
    arrived = read_outside(told.to_json() or "")
    assert (arrived.services, arrived.watching) == (services, told.watching)
    assert json.dumps(list(arrived.results.allow_hosts)) == '["a.example"]'


def test_without_services_nothing_is_told() -> None:
    assert Outside(services={}, results=ResultOptions(place="/somewhere")).to_json() is None


def test_what_becomes_of_a_service_is_said_once_for_each_change_with_the_type_of_its_jobs() -> None:
    said: list[str] = []
    service = standing(WELL, ILL, ILL, WELL, said=said)
    for _ in range(4):
        service.look()
    assert said == [
        "jobs of type comfyui are not taken: nobody answers at http://127.0.0.1:8188",
        "jobs of type comfyui are taken again",
    ]


def test_a_service_that_was_not_asked_yet_is_not_called_unfit_to_others() -> None:
    service = standing(ILL)
    assert service.faults() == {}
    service.look()
    assert service.faults() == {"comfyui": ILL.fault}


def test_a_service_that_has_been_at_one_job_for_too_long_is_unfit_until_it_moves() -> None:
    """Its execution may be dead: it takes jobs, answers every question, and never begins one."""
    stuck, moved = replace(WELL, working_on="p1"), replace(WELL, working_on="p2")
    clock = Hand()
    service = standing(stuck, stuck, stuck, ILL, stuck, moved, moved, WELL, clock=clock)
    seen: list[str | None] = []
    for _ in range(8):
        service.look()
        seen.append(service.unfit().get("comfyui"))
        clock.sleep(timedelta(seconds=400))
    late = "it has been at its job p1 for over 900 seconds, and begins no other until that ends"
    assert seen == [None, None, None, ILL.fault, late, None, None, None]
