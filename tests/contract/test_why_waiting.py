"""Why a job is not given out though there may be workers for it."""

from collections.abc import Sequence

from herdsman.control.commands import claim_job
from herdsman.control.commands.holds import pause
from herdsman.control.explain import why_job
from herdsman.control.services import Services
from herdsman.core.model import JobId, WorkerId
from herdsman.store import models
from tests.builders import a_job, a_worker


def because(services: Services, job_id: JobId) -> Sequence[str]:
    return why_job(services, job_id).because


def test_what_is_paused_is_named_with_the_way_to_go_on(services: Services) -> None:
    pause(services, "type:demo", why="new disks", who="ann")
    job = a_job(services)
    assert because(services, job)[0] == (
        "type demo is stopped (new disks); go on with: herdsman resume --type demo"
    )
    assert not any("stopped" in said for said in because(services, a_job(services, type="other")))


def test_a_full_key_is_named(services: Services) -> None:
    a_job(services, concurrency_key="k")
    waiting = a_job(services, concurrency_key="k")
    claim_job(services, a_worker(services))
    assert any("1 jobs of key k run" in said for said in because(services, waiting))


def test_a_job_that_waits_for_a_warm_worker_says_so(services: Services) -> None:
    worker: WorkerId = a_worker(services)
    services.database.transact(lambda tx: models.note_models(tx, worker, ("org/a",), None, None))
    job = a_job(services, model="org/a")
    assert any("model org/a loaded" in said for said in because(services, job))
