"""A ComfyUI with every fault at every step: each job ends once, and nothing is rendered twice (J3)."""

import time
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from herdsman.context import Services
from herdsman.jobs import sql as jobs_sql
from herdsman.jobs.commands import find_job
from herdsman.jobs.protocol import Finished, ServiceJob
from herdsman.states import JOB, JobStatus, Reason
from herdsman.testing.fakes.comfyui import FakeComfyUI, Fault
from tests.chaos.comfyui_storm import ATTEMPTS, SPEED, Storm, hashes
from tests.support.amounts import amount
from tests.support.builders import a_worker
from tests.support.comfyui import a_connector, workflow
from tests.support.databases import MovingClock

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3000)]

RUNS = amount("COMFYUI_RUNS", 5, soak=40)
FIRST = amount("COMFYUI_FIRST", 0)
LOST = (Fault.RESTART, Fault.VIEW_MISSING)
"""What makes a second render right: the service has lost the first."""


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> object:
    """What is shown here is the same on every database, and the others have been shown to keep the rules."""
    return request.getfixturevalue(request.param)


def test_no_fault_at_any_step_loses_or_doubles_a_render(services: Services, clock: MovingClock, tmp_path: Path) -> None:
    a_worker(services, "w1")
    a_worker(services, "w2")
    began, recovered, struck = time.monotonic(), 0, 0
    for seed in range(FIRST, FIRST + RUNS):
        storm = Storm(services, clock, tmp_path / str(seed), seed)
        fake = storm.ride()
        recovered += check(services, storm, fake)
        struck += sum(fake.struck(plan.fault) > 0 for plan in storm.plans)
    print(f"{RUNS} runs, {struck} faults struck, {recovered} recovered, {time.monotonic() - began:.0f} s")
    assert struck > RUNS / 2, "the faults did not happen"
    assert recovered > 0


def check(services: Services, storm: Storm, fake: FakeComfyUI) -> bool:
    job, story = find_job(services, storm.job_id), told(storm)
    assert job.status is JobStatus.DONE, f"{job.status}: {job.last_error}\n{story}"
    assert job.attempts <= ATTEMPTS
    steps = services.database.read(lambda tx: jobs_sql.job_history(tx, JOB.kind, storm.job_id))
    assert sum(step.to_status == JobStatus.DONE for step in steps) == 1, story
    renders = fake.ledger.renders
    for prompt_id in {render.prompt_id for render in renders}:
        assert fake.renders(prompt_id) == 1, f"{prompt_id} was rendered twice\n{story}"
    whole = sum(render.end == "success" for render in renders)
    lost = sum(fake.struck(fault) for fault in LOST)
    assert whole <= 1 + lost, f"{whole} whole renders, and the service lost {lost}\n{story}"
    assert hashes(job.result) == undisturbed(storm.variant, storm.files.parent), story
    return job.reason is Reason.RECOVERED


@cache
def undisturbed(variant: int, files: Path) -> list[str]:
    """What the same workflow gives where nothing goes wrong: recovered or not, the bytes must be these."""
    with FakeComfyUI(speed=SPEED) as fake:
        connector = a_connector(fake.url, files)
        job = ServiceJob(job_id=f"calm-{variant}", type="comfyui", payload={"workflow": workflow(variant)})
        connector.submit(job, external_id := str(uuid4()))
        fake.wait_for(lambda: isinstance(connector.check(external_id), Finished))
        finished = connector.check(external_id)
        assert isinstance(finished, Finished)
        found = hashes(connector.fetch(job, external_id, finished))
        connector.close()
    return found


def told(storm: Storm) -> str:
    plans = ", ".join(str(plan) for plan in storm.plans)
    return f"seed {storm.seed}: {plans}\n" + "\n".join(storm.lines)
