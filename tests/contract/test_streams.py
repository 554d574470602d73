"""Streams hint, rows decide: whatever Redis says, forgets or makes up, the jobs are those of the database (S1-S4, X8)."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Thread

import pytest

from herdsman.context import Services
from herdsman.ids import JobId, PoolId
from herdsman.jobs.commands import cancel_job, find_job, requeue_job
from herdsman.jobs.sweep import stage_due_jobs
from herdsman.jobs.worker_commands import complete_job, fail_job, release_job
from herdsman.redis.streams import Count, job_key
from herdsman.states import POOL, JobStatus
from tests.chaos.waiting import waited_for
from tests.support.builders import BROKEN, HOPELESS, a_job, a_worker, claimed, scalar, sql
from tests.support.databases import MovingClock
from tests.support.redis_streams import NAMES, QUICK, STEADY, Replica, client, replica
from tests.support.rows import add_row
from tests.support.servers.redis import RedisServer
from tests.support.worker_calls import claim_job


@pytest.fixture
def one(redis_server: RedisServer, services: Services) -> Iterator[Replica]:
    client(redis_server).flushall()
    with replica(redis_server, services) as opened:
        opened.listen()
        yield opened


def held(one: Replica, **wanted: object) -> JobId:
    """A job that was announced and is looked after by this replica."""
    job_id = one.submit(**wanted)
    one.publish()
    one.listen()
    return job_id


def test_a_submission_is_announced_by_name_alone(one: Replica) -> None:
    """The stream, its group, and an entry without a payload."""
    job_id = one.submit(payload={"secret": 1}, timeout=timedelta(seconds=90))
    one.publish()
    (fields,) = one.entries()
    assert fields == {"job_id": job_id, "type": "demo", "timeout_seconds": "90", "by": "one"}
    (group,) = one.raw.xinfo_groups("stream:orchestrator:inference_jobs")
    assert group["name"] == "cg:inference"
    mirrored = one.raw.hgetall(job_key(job_id))
    assert (mirrored["status"], mirrored["pool"], mirrored["version"]) == ("pending", "default", "1")
    assert 0 < one.raw.ttl(job_key(job_id)) <= 86_400


def test_an_entry_of_another_replica_wakes_this_one_and_its_own_does_not(
    one: Replica, redis_server: RedisServer
) -> None:
    one.submit()
    one.publish()
    assert one.listen() == 0
    with replica(redis_server, one.services, "two", leads=False) as two:
        two.listen()
        two.submit()
        two.publish()
        assert (one.listen(), two.listen()) == (1, 0)


def test_every_replica_hears_an_entry_that_only_one_is_given(one: Replica, redis_server: RedisServer) -> None:
    """The group hands it to one, which may have no worker that waits."""
    with replica(redis_server, one.services, "two", leads=False, block=timedelta(seconds=20)) as two:
        waits = Thread(target=two.listen)
        waits.start()
        waited_for(lambda: one.raw.info("clients")["blocked_clients"] or None)
        with one.raw.pipeline(transaction=True) as pipe:  # it is the other's before anybody else can ask
            pipe.xadd(NAMES.jobs.name, {"job_id": a_job(one.services), "type": "demo", "by": "one"})
            pipe.xreadgroup(NAMES.jobs.group, "one", {NAMES.jobs.name: ">"})
            pipe.execute()
        waits.join()
        assert two.heard == ["wake"]


def test_what_was_in_the_stream_before_its_group_is_not_skipped(redis_server: RedisServer, services: Services) -> None:
    """A group that began at `$` would never see it."""
    raw = client(redis_server)
    raw.flushall()
    job_id = a_job(services)
    raw.xadd(NAMES.jobs.name, {"job_id": job_id, "type": "demo"})
    with replica(redis_server, services) as late:
        late.listen()
        late.listen()
        assert len(late.pending()) == 1


@pytest.mark.parametrize("end", [JobStatus.DONE, JobStatus.CANCELLED, JobStatus.FAILED])
def test_an_entry_is_settled_when_its_job_has_ended_and_not_before(one: Replica, end: JobStatus) -> None:
    """Acknowledged and deleted after the commit."""
    other = held(one, pool=PoolId("nobody"))  # before it, and still there after it
    job_id = held(one)
    claim = claimed(one.services, a_worker(one.services))
    one.keep()
    assert len(one.pending()) == len(one.entries()) == 2
    assert one.raw.hget(job_key(job_id), "status") == "claimed"
    match end:
        case JobStatus.DONE:
            complete_job(one.services, claim.key, {})
        case JobStatus.CANCELLED:
            release_job(one.services, claim.key, "drain")
            cancel_job(one.services, job_id)
        case _:
            fail_job(one.services, claim.key, BROKEN)
    one.keep()
    assert len(one.pending()) == 1
    assert [each["job_id"] for each in one.entries()] == [other]
    assert one.raw.hget(job_key(job_id), "status") == end
    assert one.count(Count.SETTLED) == 1


def test_a_dead_letter_is_announced_once_with_its_four_fields(one: Replica, redis_server: RedisServer) -> None:
    job_id = held(one)
    (entry,) = one.raw.xrange(NAMES.jobs.name)
    with replica(redis_server, one.services, "two", leads=False) as two:
        one.raw.xadd(NAMES.jobs.name, {"job_id": job_id, "type": "demo"})  # a duplicate, for the other one
        two.listen()
        two.listen()
        fail_job(one.services, claimed(one.services, a_worker(one.services)).key, HOPELESS)
        one.keep()
        two.keep()
        one.keep()
    (letter,) = one.dead()
    assert letter == {"job_id": job_id, "origin_id": entry[0], "attempts": "1", "last_error": "no such model"}
    assert not one.pending()


def test_a_job_that_dies_again_is_announced_again(one: Replica) -> None:
    job_id = held(one)
    worker = a_worker(one.services)
    for times in (1, 2):
        fail_job(one.services, claimed(one.services, worker).key, HOPELESS)
        one.keep()
        assert len(one.dead()) == times
        requeue_job(one.services, job_id)


def test_dead_letters_that_redis_has_forgotten_are_announced_from_the_database(one: Replica) -> None:
    held(one)
    fail_job(one.services, claimed(one.services, a_worker(one.services)).key, HOPELESS)
    one.raw.flushall()
    one.keep()
    one.bus.resync_soon()
    one.keep()
    assert [each["last_error"] for each in one.dead()] == ["no such model"]


def test_a_retry_is_announced_when_its_time_has_come_and_not_by_redelivery(one: Replica, clock: MovingClock) -> None:
    """J8: the delay is a column; the old entry is gone at once."""
    job_id = held(one)
    fail_job(one.services, claimed(one.services, a_worker(one.services)).key, BROKEN)
    one.keep()
    one.keep()
    assert not one.entries()
    clock.advance(timedelta(minutes=10))
    assert stage_due_jobs(one.services) == 1
    one.keep()
    assert [each["job_id"] for each in one.entries()] == [job_id]
    one.keep()
    assert len(one.entries()) == 1, "once is enough"


def test_a_job_that_waits_for_its_time_is_not_announced_before(one: Replica) -> None:
    one.submit(delay=timedelta(hours=1))
    one.publish()
    one.keep()
    assert not one.entries()


def test_everything_that_redis_forgot_is_announced_again(one: Replica) -> None:
    """S1: FLUSHALL takes streams, groups and mirrors; the jobs are still there and still announced once each."""
    jobs = {held(one) for _ in range(3)}
    one.raw.flushall()
    one.listen()
    one.keep()
    assert {each["job_id"] for each in one.entries()} == jobs
    one.listen()
    one.keep()
    assert len(one.entries()) == len(one.pending()) == 3
    assert one.bus.state.fault is None


@pytest.mark.parametrize("lost", ["stream", "group"])
def test_a_stream_or_a_group_that_was_deleted_is_made_again(one: Replica, lost: str) -> None:
    """NOGROUP."""
    job_id = held(one)
    if lost == "stream":
        one.raw.delete(NAMES.jobs.name, job_key(job_id))
    else:
        one.raw.xgroup_destroy(NAMES.jobs.name, NAMES.jobs.group)
    one.listen()
    one.keep()
    one.listen()
    assert [each["consumer"] for each in one.pending()] == ["one"]
    complete_job(one.services, claimed(one.services, a_worker(one.services)).key, {})
    one.keep()
    assert not one.pending()


def test_ghosts_and_duplicates_of_a_job_that_is_done_start_nothing(one: Replica) -> None:
    """The row decides, whatever the stream says."""
    job_id = held(one)
    worker = a_worker(one.services)
    complete_job(one.services, claimed(one.services, worker).key, {})
    one.keep()
    for _ in range(3):
        one.raw.xadd(NAMES.jobs.name, {"job_id": job_id, "type": "demo"})
    one.listen()
    assert claim_job(one.services, worker) is None
    one.keep()
    assert not one.entries()
    assert find_job(one.services, job_id).attempts == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "forged", "type": "demo"},
        {"job_id": "a\0b", "type": "demo"},
        {"job_id": "x" * 100_000, "type": "demo"},
        {"job_id": "'; DROP TABLE jobs; --", "type": "demo"},
        {"job_id": b"\xff\xfe", "type": "demo"},
        {"nonsense": "1"},
        {"job_id": ""},
    ],
    ids=["forged", "nul", "long", "sql", "bytes", "nameless", "empty"],
)
def test_what_is_no_job_is_quarantined_with_an_audit_row_and_nothing_stops(
    one: Replica, fields: dict[str, str]
) -> None:
    """X8"""
    good = held(one)
    entry_id = one.raw.xadd(NAMES.jobs.name, fields)
    one.listen()
    one.keep()
    assert [each["job_id"] for each in one.entries()] == [good]
    (letter,) = one.dead()
    assert letter["origin_id"] == entry_id
    assert letter["attempts"] == "0"
    assert letter["last_error"]
    assert one.count(Count.QUARANTINED) == 1
    row = "SELECT count(*) FROM orchestrator_audit WHERE event_type = 'stream.quarantined' AND object_id = :id"
    assert scalar(one.services.database, row, id=f"{NAMES.jobs.name}:{entry_id}") == 1


def test_a_flood_of_forged_entries_fills_no_table(one: Replica) -> None:
    for number in range(300):
        one.raw.xadd(NAMES.jobs.name, {"job_id": f"forged-{number}", "type": "demo"})
    one.listen()
    one.keep()
    assert not one.entries()
    assert one.count(Count.QUARANTINED) == 300
    row = "SELECT count(*) FROM orchestrator_audit WHERE object_kind = 'stream'"
    assert scalar(one.services.database, row) == 100


def test_a_job_that_runs_is_never_taken_from_a_replica_that_lives(
    redis_server: RedisServer, services: Services
) -> None:
    """Looked at again and again, what a replica holds never looks idle."""
    client(redis_server).flushall()
    with (
        replica(redis_server, services, "one", leads=False, rhythm=STEADY) as one,
        replica(redis_server, services, "two", rhythm=STEADY) as two,
    ):
        one.listen()
        job_id = held(one)
        claimed(services, a_worker(services))
        for _ in range(20):  # of 100 ms each, three times the limit
            one.keep()
            two.keep()
        assert [each["consumer"] for each in one.pending()] == ["one"]
        assert (two.count(Count.RECLAIMED), two.count(Count.KEPT)) == (0, 0)
        assert find_job(services, job_id).attempts == 1


def test_entries_of_a_replica_that_died_are_taken_over_and_the_rows_decide(
    redis_server: RedisServer, services: Services
) -> None:
    """One runs and is left alone, one is done, one waits and somebody is woken."""
    client(redis_server).flushall()
    with (
        replica(redis_server, services, "dead", leads=False, rhythm=QUICK) as dead,
        replica(redis_server, services, "two", rhythm=QUICK) as two,
    ):
        dead.listen()
        worker, other = a_worker(services, "w1"), a_worker(services, "w2")
        done, runs, waits = (held(dead) for _ in range(3))
        complete_job(services, claimed(services, worker).key, {})
        claimed(services, other)
        for _ in range(
            100
        ):  # until they have been idle for so long, and not longer: then they would be looked at again
            two.keep()
            if [each["consumer"] for each in two.pending()] == ["two", "two"]:
                break
        assert [each["consumer"] for each in two.pending()] == ["two", "two"]
        assert {each["job_id"] for each in two.entries()} == {runs, waits}
        assert two.count(Count.KEPT) == 1
        assert two.count(Count.RECLAIMED) == 2
        assert two.heard.count("wake") == 1
        assert (find_job(services, done).attempts, find_job(services, runs).attempts) == (1, 1)
        assert find_job(services, runs).status is JobStatus.CLAIMED


def test_a_pool_that_is_isolated_has_a_stream_of_its_own(one: Replica) -> None:
    add_row(one.services.database, POOL, "pool-x", isolated=1)
    one.bus.job_streams.refresh()
    own = NAMES.jobs_of(PoolId("pool-x"))
    assert (own.name, own.group) == (
        "stream:orchestrator:inference_jobs:pool-x",
        "cg:inference:pool-x",
    )
    shared, alone = held(one), held(one, pool=PoolId("pool-x"))
    one.listen()
    assert [each["job_id"] for each in one.entries()] == [shared]
    assert [each["job_id"] for each in one.entries(own)] == [alone]
    assert len(one.pending(own)) == 1
    one.raw.flushall()
    one.keep()
    one.keep()
    assert [each["job_id"] for each in one.entries(own)] == [alone]


def test_the_stream_ends_with_the_wish_for_one(one: Replica) -> None:
    add_row(one.services.database, POOL, "pool-x", isolated=1)
    one.bus.job_streams.refresh()
    own = NAMES.jobs_of(PoolId("pool-x"))
    held(one, pool=PoolId("pool-x"))
    assert one.raw.exists(own.name)
    sql(one.services.database, "UPDATE worker_pools SET isolated = 0")
    waited_for(lambda: one.keep() or not one.raw.exists(own.name) or None)
