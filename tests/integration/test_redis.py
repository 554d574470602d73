"""A replica with a real Redis that misbehaves in every way that it knows: requests go on, and the loops come back."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

from herdsman.context import Services
from herdsman.errors import InvalidSettings, NotFound
from herdsman.ids import JobId
from herdsman.jobs.commands import find_job
from herdsman.jobs.model import JobPolicy
from herdsman.jobs.writer import Writer
from herdsman.limits.control_policy import AgentLimits, ControlPolicy
from herdsman.pools.rules import Serves
from herdsman.ports import SystemClock
from herdsman.redis import stream_loops
from herdsman.redis.bus import StreamBus
from herdsman.redis.redis_client import check_version
from herdsman.redis.streams import BusUnavailable, Count
from herdsman.server.replica import bus_opener
from herdsman.settings import load_settings
from herdsman.states import JobStatus
from herdsman.wire import new_job_id
from tests.chaos.waiting import waited_for
from tests.support.builders import a_job, scalar
from tests.support.databases import SqliteFiles, opened
from tests.support.redis_streams import NAMES, Replica, client, replica
from tests.support.servers.redis import RedisServer

PASSWORD = "canary-" + "x" * 20


@pytest.fixture
def services(sqlite: SqliteFiles) -> Iterator[Services]:
    with opened(sqlite.fresh()) as database:
        yield Services(database, JobPolicy(), new_job_id)


@pytest.fixture
def one(redis_server: RedisServer, services: Services) -> Iterator[Replica]:
    client(redis_server).flushall()
    with replica(redis_server, services, agent="hand") as made:
        yield made


@contextmanager
def running(one: Replica) -> Generator[StreamBus]:
    one.bus.start()
    try:
        waited_for(lambda: one.raw.exists(NAMES.jobs.name) or None)
        yield one.bus
    finally:
        one.bus.stop()


def said(one: Replica, wanted: str) -> None:
    """In the log, where a fault stands whole, or in short to whoever asks."""
    waited_for(lambda: wanted in f"{one.bus.said} {one.bus.state.fault}" or None)


def works(one: Replica) -> None:
    """A job that is announced now is heard of."""
    said(one, "ok")
    before = one.count(Count.PUBLISHED)
    one.submit()
    waited_for(lambda: one.count(Count.PUBLISHED) > before or None)


@pytest.mark.parametrize(
    ("setting", "value", "usual", "word"),
    [
        ("maxmemory", "1", "0", "OutOfMemory"),
        ("replicaof", "127.0.0.1 1", "no one", "ReadOnly"),
    ],
)
def test_a_server_that_refuses_to_write_is_waited_for(
    one: Replica, setting: str, value: str, usual: str, word: str
) -> None:
    """S1: the submission itself is accepted all the same."""
    with running(one):
        works(one)
        if setting == "replicaof":
            one.raw.execute_command("REPLICAOF", *value.split())
        else:
            one.raw.config_set(setting, value)
        one.submit()
        said(one, word)
        if setting == "replicaof":
            one.raw.execute_command("REPLICAOF", *usual.split())
        else:
            one.raw.config_set(setting, usual)
        works(one)


def test_a_server_that_cannot_save_is_waited_for(services: Services, tmp_path: Path) -> None:
    """MISCONF, as after a full disk."""
    options = ["--enable-protected-configs", "yes"]
    with RedisServer(tmp_path, options=options) as full, replica(full, services) as one, running(one):
        works(one)
        usual = one.raw.config_get("dir")["dir"]
        one.raw.config_set("dir", "/proc")
        one.raw.config_set("save", "3600 1")
        one.raw.bgsave()
        said(one, "MISCONF")
        one.raw.config_set("save", "")
        one.raw.config_set("dir", usual)
        works(one)


def test_a_server_that_says_nothing_holds_up_nobody(one: Replica, redis_server: RedisServer) -> None:
    with running(one):
        works(one)
        redis_server.pause()
        try:
            began = SystemClock().monotonic()
            for _ in range(50):
                one.submit()
            assert SystemClock().monotonic() - began < 2.0
            said(one, "degraded")
        finally:
            redis_server.resume()
        works(one)


def test_a_server_that_is_not_there_yet_is_found_later(services: Services, tmp_path: Path) -> None:
    late = RedisServer(tmp_path)
    with replica(late, services) as made:
        made.bus.start()
        try:
            job_id = made.submit()
            said(made, "degraded")
            late.start()
            works(made)
            waited_for(lambda: job_id in {each["job_id"] for each in made.entries()} or None)
        finally:
            made.bus.stop()
            late.close()


def test_the_state_is_logged_once_and_never_with_the_password(
    services: Services, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X5."""
    with RedisServer(tmp_path) as closed_up:
        client(closed_up).config_set("requirepass", PASSWORD)
        env = {"REDIS_URL": f"redis://:wrong-{PASSWORD}@127.0.0.1:{closed_up.port}/0"}
        settings = load_settings(env, Path("/nonexistent"))
        open_bus = bus_opener(settings, services, None)
        assert open_bus is not None
        bus = open_bus(Writer(services, SystemClock()))
        with structlog.testing.capture_logs() as logs:
            bus.start()
            waited_for(lambda: bus.state.counts[Count.FAULTS] > 5 or None)
            bus.stop()
    assert [each["event"] for each in logs].count("streams.away") == 1
    shown = f"{logs} {bus.said} {capsys.readouterr()}"
    assert PASSWORD not in shown
    assert "degraded" in bus.said


def test_the_ids_of_a_stream_that_somebody_used_up_are_not_the_end(one: Replica) -> None:
    with running(one):
        works(one)
        one.raw.xadd(NAMES.jobs.name, {"job_id": "x"}, id="18446744073709551615-18446744073709551615")
        job_id = one.submit()
        waited_for(lambda: job_id in {each["job_id"] for each in one.entries()} or None)
        works(one)


def test_a_key_of_another_kind_in_the_place_of_a_stream_is_said_and_survived(one: Replica) -> None:
    with running(one):
        works(one)
        one.raw.delete(NAMES.jobs.name)
        one.raw.set(NAMES.jobs.name, "not a stream")
        said(one, "WRONGTYPE")
        one.raw.delete(NAMES.jobs.name)
        works(one)


def test_an_older_redis_is_named() -> None:
    class Old:
        def info(self, _section: str) -> dict[str, str]:
            return {"redis_version": "6.0.16"}

    with pytest.raises(BusUnavailable, match=r"Redis 6\.0\.16 is too old: 6\.2 or newer is needed"):
        check_version(Old())


def test_without_the_package_the_message_says_what_to_install(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_name: str) -> Any:
        raise ModuleNotFoundError("No module named 'redis'", name="redis")

    monkeypatch.setattr("herdsman.server.replica.import_module", missing)
    settings = load_settings({"REDIS_URL": "redis://127.0.0.1/0"}, Path("/nonexistent"))
    with pytest.raises(InvalidSettings, match=r"pip install 'herdsman\[redis\]'"):
        bus_opener(settings, services, None)


def test_a_job_that_was_added_by_hand_is_run_like_any_other(one: Replica) -> None:
    """The payload goes to the database, and from there on it is an ordinary job of that agent."""
    fields = {"type": "demo", "payload": '{"a": 1}', "priority": "5", "job_id": "by-hand", "agent": "root"}
    with running(one):
        one.raw.xadd(NAMES.ingest.name, fields)
        again = one.raw.xadd(NAMES.ingest.name, fields)
        nameless = one.raw.xadd(NAMES.ingest.name, {"type": "demo"})
        waited_for(lambda: one.count(Count.INGESTED) == 3 or None)
        job = find_job(one.services, JobId("by-hand"))
        assert (job.payload, job.priority, job.agent, job.status) == ({"a": 1}, 5, "hand", JobStatus.PENDING)
        assert find_job(one.services, JobId(f"ingest-{nameless}")).type == "demo"
        assert scalar(one.services.database, "SELECT count(*) FROM orchestrator_jobs") == 2, again
        # A sweep between commit and announcement says a job once more: hints may be doubled, none may be missing.
        waited_for(lambda: len({entry["job_id"] for entry in one.entries()}) == 2 or None)
        waited_for(lambda: one.heard.count("ring") == 2 or None)
        assert one.raw.xlen(NAMES.ingest.name) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": "{}"},
        {"type": "demo", "payload": "{"},
        {"type": "demo", "payload": "[" * 100_000},
        {"type": "demo", "priority": "high"},
        {"type": "demo", "priority": "1e99"},
        {"type": "demo", "colour": '"red"'},
        {"type": "de mo"},
        {"type": "demo", "payload": "NaN"},
        {"type": "demo", "job_id": "taken", "payload": "2"},
    ],
    ids=["typeless", "json", "deep", "text", "huge", "unknown", "name", "nan", "conflict"],
)
def test_what_cannot_be_a_job_is_quarantined_with_an_audit_row(one: Replica, fields: dict[str, str]) -> None:
    a_job(one.services, job_id=JobId("taken"), agent="hand", payload=1)
    with running(one):
        entry_id = one.raw.xadd(NAMES.ingest.name, fields)
        waited_for(lambda: one.count(Count.QUARANTINED) == 1 or None)
        (letter,) = one.dead()
        assert letter["origin_id"] == entry_id
        assert letter["last_error"]
        row = "SELECT count(*) FROM orchestrator_audit WHERE object_id = :id"
        assert scalar(one.services.database, row, id=f"{NAMES.ingest.name}:{entry_id}") == 1
        one.raw.xadd(NAMES.ingest.name, {"type": "demo", "job_id": "good"})
        waited_for(lambda: one.count(Count.INGESTED) == 1 or None)
        assert find_job(one.services, JobId("good")).status is JobStatus.PENDING


def test_who_is_refused_for_now_waits_in_the_stream(redis_server: RedisServer, services: Services) -> None:
    """J10: admission holds for entries too; none is dropped."""
    client(redis_server).flushall()
    limits = AgentLimits(max_queued=1)
    rules = ControlPolicy(version=1, default=limits, agents={"hand": limits})
    tight = Services(services.database, services.policy, new_job_id, rules=lambda: rules)
    with replica(redis_server, tight, agent="hand") as one, running(one):
        for name in ("first", "second"):
            one.raw.xadd(NAMES.ingest.name, {"type": "demo", "job_id": name})
        waited_for(lambda: one.count(Count.INGESTED) == 1 or None)
        waited_for(lambda: (one.pending(NAMES.ingest) and one.raw.xlen(NAMES.ingest.name) == 1) or None)
        with pytest.raises(NotFound):
            find_job(services, JobId("second"))
        assert not one.dead()


def test_without_the_switch_nobody_reads_what_was_added_by_hand(redis_server: RedisServer, services: Services) -> None:
    client(redis_server).flushall()
    with replica(redis_server, services) as one:
        one.raw.xadd(NAMES.ingest.name, {"type": "demo", "job_id": "by-hand"})
        with running(one):
            works(one)
        assert one.raw.xlen(NAMES.ingest.name) == 1
        with pytest.raises(NotFound):
            find_job(services, JobId("by-hand"))


def test_an_order_about_a_pool_is_acknowledged_after_a_cycle_of_the_leader(one: Replica) -> None:
    """Pool -> preloads stream -> provisioner -> control loop."""
    with running(one) as bus:
        bus.announce_pool("create", "pool-x", Serves(model="m"), desired_workers=2)
        waited_for(lambda: "tick" in one.heard or None)
        waited_for(lambda: one.raw.xlen(NAMES.preloads.name) == 0 or None)
        (group,) = one.raw.xinfo_groups(NAMES.preloads.name)
        assert (group["name"], group["pending"]) == ("cg:preloads:workers", 0)


def test_who_does_not_lead_leaves_orders_to_the_leader(redis_server: RedisServer, services: Services) -> None:
    client(redis_server).flushall()
    with replica(redis_server, services, leads=False) as one:
        one.bus.announce_pool("create", "pool-x")
        one.publish()
        assert one.bus.provisioner is not None
        one.bus.context.ordered.set()
        one.bus.provisioner.turn()
        assert one.heard == []
        (fields,) = one.entries(NAMES.preloads)
        assert fields == {
            "event": "create",
            "pool_id": "pool-x",
            "model_id": "",
            "adapter": "",
            "variant": "",
            "desired_workers": "",
        }


def test_a_word_of_control_reaches_every_replica(one: Replica, redis_server: RedisServer) -> None:
    with replica(redis_server, one.services, "two", leads=False, block=timedelta(milliseconds=200)) as two:
        with running(one), running(two):
            works(one)
            before = [one.heard.count("wake"), two.heard.count("wake")]
            waited_for(lambda: one.raw.info("clients")["blocked_clients"] == 2 or None)
            one.bus.announce_control("pause", "ann", "all")
            waited_for(lambda: one.heard.count("wake") > before[0] or None)
            waited_for(lambda: two.heard.count("wake") > before[1] or None)
        ((_, fields),) = one.raw.xrange(NAMES.control)
        assert fields == {"event": "pause", "by": "ann", "scope": "all"}


def test_where_a_job_is_on_another_service_can_be_seen_in_redis(one: Replica) -> None:
    mapping = {"service_job_id": "p-1", "service_status": "submitted", "service_submitted_at": "now"}
    with running(one) as bus:
        bus.mirror("job-1", {**mapping, "last_service_check": "now"})
        waited_for(lambda: one.raw.hget("job:job-1", "service_job_id") or None)
        assert one.raw.hgetall("job:job-1") == {**mapping, "last_service_check": "now"}
        assert one.raw.ttl("job:job-1") > 0


def test_consumers_that_hold_something_are_never_removed(one: Replica) -> None:
    """S4: with a consumer Redis throws away what it holds."""
    one.listen()
    for name in ("empty", "holder"):
        one.raw.xgroup_createconsumer(NAMES.jobs.name, NAMES.jobs.group, name)
    one.submit()
    one.publish()
    one.raw.xreadgroup(NAMES.jobs.group, "holder", {NAMES.jobs.name: ">"})

    def forgotten() -> bool:
        one.bus.redis.forget_consumers(NAMES.jobs, timedelta(0))
        return "empty" not in names_of(one)

    waited_for(lambda: forgotten() or None)
    assert "holder" in names_of(one)
    assert len(one.pending()) == 1


def names_of(one: Replica) -> set[str]:
    return {each["name"] for each in one.raw.xinfo_consumers(NAMES.jobs.name, NAMES.jobs.group)}


def test_trimming_spares_what_is_held_and_what_nobody_was_given(one: Replica) -> None:
    """S4: an entry that another program acknowledged without deleting it goes; the others stay."""
    one.listen()
    ids = [one.raw.xadd(NAMES.jobs.name, {"job_id": f"j{number}"}) for number in range(4)]
    one.raw.xreadgroup(NAMES.jobs.group, "other", {NAMES.jobs.name: ">"}, count=2)
    one.raw.xack(NAMES.jobs.name, NAMES.jobs.group, ids[0])
    one.bus.redis.trim(NAMES.jobs)
    assert [entry_id for entry_id, _ in one.raw.xrange(NAMES.jobs.name)] == ids[1:]


def test_audit_rows_come_again_after_a_minute(one: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_loops, "MOST_ROWS", 1)
    monkeypatch.setattr(stream_loops, "_MINUTE_S", 0.0)
    one.listen()
    for number in range(3):
        one.raw.xadd(NAMES.jobs.name, {"job_id": f"forged-{number}"})
    one.listen()
    one.keep()
    rows = "SELECT count(*) FROM orchestrator_audit WHERE object_kind = 'stream'"
    assert scalar(one.services.database, rows) == 3
