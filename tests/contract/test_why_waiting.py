"""What is not in a job's way is not named as if it were."""

from herdsman.context import Services
from herdsman.explain.rules import WaitCode
from herdsman.explain.why import why_job
from herdsman.fleet import sql as fleet_sql
from herdsman.ids import JobId
from herdsman.limits.commands import pause
from tests.support.builders import a_job, a_worker, claimed


def named(services: Services, job_id: JobId) -> str:
    blocker = why_job(services, job_id).blocker
    assert blocker is not None
    return blocker.code


def test_what_is_paused_stops_no_other_type(services: Services) -> None:
    a_worker(services)
    pause(services, "type:demo", reason="new disks", who="ann")
    assert named(services, a_job(services)) == WaitCode.PAUSED
    assert named(services, a_job(services, type="other")) == WaitCode.NEXT


def test_a_key_with_room_is_in_nobodys_way(services: Services) -> None:
    a_worker(services)
    assert named(services, a_job(services, concurrency_key="k")) == WaitCode.NEXT
    claimed(services, a_worker(services, "w2"))
    assert named(services, a_job(services, concurrency_key="k")) == WaitCode.KEY_FULL
    assert named(services, a_job(services, concurrency_key="other")) == WaitCode.NEXT


def test_a_model_on_a_free_worker_is_not_waited_for(services: Services) -> None:
    worker = a_worker(services)
    services.database.transact(lambda tx: fleet_sql.note_models(tx, worker, ("org/a",), None, None))
    assert named(services, a_job(services, model="org/a")) == WaitCode.NEXT
    assert named(services, a_job(services, model="org/b")) == WaitCode.NEXT
