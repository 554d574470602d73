"""Accepting jobs: stored before the answer, once however often they are sent, or refused with a reason."""

from dataclasses import replace
from datetime import timedelta

import pytest

from herdsman.context import Services
from herdsman.errors import Conflict, InvalidRequest
from herdsman.fleet.sql import note_models
from herdsman.ids import JobId, PoolId
from herdsman.jobs.commands import find_job, submit_job
from herdsman.jobs.model import NewJob, Submitted
from herdsman.jobs.writer import Round, write_round
from herdsman.pools.commands import drain_pool
from herdsman.pools.rules import PoolRules, Serves
from herdsman.states import JobStatus, Reason
from tests.support.builders import a_job, a_worker, replayed
from tests.support.databases import NOON, MovingClock
from tests.support.pools import a_pool

ID = JobId("job-1")


def test_an_accepted_job_is_one_row_with_everything_that_was_asked_for(services: Services) -> None:
    """J1"""
    answer = submit_job(
        services,
        NewJob(
            type="render",
            payload={"steps": 20, "text": "héllo \U0001f600", "nothing": None, "share": 0.1},
            job_id=ID,
            idempotency_key="k1",
            agent="studio",
            pool=PoolId("big"),
            priority=7,
            tags=("a", "b"),
            timeout=timedelta(seconds=90.5),
            max_attempts=5,
            retry_base=timedelta(seconds=2),
            retry_cap=timedelta(seconds=60),
        ),
    )
    job = find_job(services, ID)
    assert answer == Submitted(ID, created=True)
    assert (job.type, job.agent, job.pool, job.priority, job.tags) == (
        "render",
        "studio",
        "big",
        7,
        ("a", "b"),
    )
    assert job.payload == {"steps": 20, "text": "héllo \U0001f600", "nothing": None, "share": 0.1}
    assert (job.timeout, job.max_attempts) == (timedelta(seconds=90.5), 5)
    assert (job.retry_base, job.retry_cap) == (timedelta(seconds=2), timedelta(seconds=60))
    assert (job.status, job.reason, job.version) == (JobStatus.PENDING, Reason.SUBMITTED, 1)
    assert (job.attempts, job.claim_token, job.worker_id) == (0, 0, None)
    assert replayed(services, ID) == JobStatus.PENDING


def test_the_time_of_a_job_is_the_database_s_to_the_microsecond(services: Services, clock: MovingClock) -> None:
    clock.stop(at=NOON.replace(microsecond=123456))
    job = find_job(services, a_job(services))
    assert job.created_at == job.run_at == job.updated_at == NOON.replace(microsecond=123456)


def test_sending_the_same_job_again_changes_nothing(services: Services) -> None:
    """J2"""
    first = NewJob(type="demo", payload={"a": 1, "b": [2]}, job_id=ID, tags=("x",))
    again = NewJob(type="demo", payload={"b": [2], "a": 1}, job_id=ID, tags=("x",))
    submit_job(services, first)
    before = find_job(services, ID)
    assert submit_job(services, again) == Submitted(ID, created=False)
    assert find_job(services, ID) == before


@pytest.mark.parametrize(
    "other",
    [{"payload": 2}, {"type": "other"}, {"priority": 1}, {"pool": PoolId("big")}, {"tags": ("y",)}],
    ids=lambda other: next(iter(other)),
)
def test_the_same_id_with_another_body_is_refused(services: Services, other: dict[str, object]) -> None:
    """J2"""
    a_job(services, job_id=ID, payload=1)
    with pytest.raises(Conflict, match="job_id 'job-1' was used before for another job body"):
        a_job(services, **{"job_id": ID, "payload": 1, **other})
    assert find_job(services, ID).payload == 1


def test_a_job_that_two_submit_in_one_moment_is_made_by_one_of_them(services: Services) -> None:
    """J2: each caller learns whether it was its own submission that made the job."""
    same, other = NewJob(type="demo", job_id=ID), NewJob(type="demo")
    first, second, third = write_round(services, Round(news=[same, same, other])).submitted
    assert (first, second) == (Submitted(ID, created=True), Submitted(ID, created=False))
    assert isinstance(third, Submitted)
    assert third.created


def test_an_idempotency_key_names_one_job_of_one_agent(services: Services) -> None:
    """J2"""
    first = submit_job(services, NewJob(type="demo", agent="ann", idempotency_key="k"))
    again = submit_job(services, NewJob(type="demo", agent="ann", idempotency_key="k"))
    other = submit_job(services, NewJob(type="demo", agent="bob", idempotency_key="k"))
    assert again == Submitted(first.job_id, created=False)
    assert other.created
    with pytest.raises(Conflict, match="idempotency_key 'k' was used before for another job body"):
        submit_job(services, NewJob(type="other", agent="ann", idempotency_key="k"))


def test_an_id_that_another_agent_has_is_refused_in_the_same_words(services: Services) -> None:
    """Neither whose it is, nor what is in it: not even with the very same words but the agent's."""
    a_job(services, job_id=ID, agent="ann", payload=1)
    a_job(services, job_id=JobId("own"), agent="bob", payload=1)
    said: set[str] = set()
    for job_id, more in ((ID, {}), (ID, {"idempotency_key": "k"}), (JobId("own"), {"priority": 1})):
        with pytest.raises(Conflict) as refused:
            a_job(services, job_id=job_id, agent="bob", payload=1, **more)
        said.add(str(refused.value).replace(job_id, "ID"))
    assert said == {"job_id 'ID' was used before for another job body: choose a new one, or send the same body"}


def test_a_key_and_an_id_must_mean_the_same_job(services: Services) -> None:
    """J2"""
    a_job(services, job_id=ID, idempotency_key="k")
    with pytest.raises(Conflict, match="idempotency_key 'k' belongs to job 'job-1', not to 'job-2'"):
        a_job(services, job_id=JobId("job-2"), idempotency_key="k")


def test_names_that_differ_only_in_case_are_different(services: Services) -> None:
    """One of the databases would take them for the same if it were not told otherwise."""
    ids = [a_job(services, job_id=JobId(name), payload=name) for name in ("job", "JOB", "Job")]
    keys = [a_job(services, idempotency_key=key, payload=key) for key in ("k", "K")]
    assert len(set(ids + keys)) == 5


def test_a_model_that_nobody_has_is_refused_where_only_known_ones_are_taken(services: Services) -> None:
    """STRICT_MODEL_STORE: named by an open pool, preloaded by one, or loaded by a worker."""
    strict = replace(services, policy=replace(services.policy, known_models_only=True))
    a_pool(services, "llm", serves=Serves(model="org/llama"), rules=PoolRules(preload=("org/vae",)))
    worker = a_worker(services)
    services.database.transact(lambda tx: note_models(tx, worker, ["org/flux"], None))
    for model in (None, "org/llama", "org/vae", "org/flux"):
        submit_job(strict, NewJob(type="render", model=model))
    with pytest.raises(InvalidRequest, match=r"'org/lama' is named by no open pool .*STRICT_MODEL_STORE"):
        submit_job(strict, NewJob(type="render", model="org/lama"))
    assert submit_job(services, NewJob(type="render", model="org/lama")).created
    drain_pool(services, PoolId("llm"))
    with pytest.raises(InvalidRequest, match="org/llama"):
        submit_job(strict, NewJob(type="render", model="org/llama"))


def test_a_job_that_was_accepted_is_not_refused_when_it_is_sent_again(services: Services) -> None:
    """J2: its model may be gone by now."""
    submit_job(services, NewJob(type="render", model="org/lama", job_id=ID))
    strict = replace(services, policy=replace(services.policy, known_models_only=True))
    assert submit_job(strict, NewJob(type="render", model="org/lama", job_id=ID)) == Submitted(ID, created=False)
