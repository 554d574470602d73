"""The parts of the streams that need no server: what a hint is worth, what is said, what is remembered."""

from collections.abc import Mapping
from datetime import timedelta
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from herdsman.errors import InvalidRequest
from herdsman.ids import JobId, PoolId
from herdsman.ports import SystemClock, SystemThreads
from herdsman.redis import stream_loops as module
from herdsman.redis.bus import Ingest, read
from herdsman.redis.stream_loops import (
    MOST_HELD,
    Announcer,
    BusContext,
    Intervals,
    Listener,
    ReplicaHooks,
    StreamMessage,
)
from herdsman.redis.streams import (
    BusState,
    Count,
    DeadLetter,
    Entry,
    Hint,
    Known,
    Names,
    Verdict,
    hint_fields,
    judge,
    possible,
)
from herdsman.states import JobStatus

VERDICTS = {
    JobStatus.SCHEDULED: Verdict.SETTLE,
    JobStatus.PENDING: Verdict.KEEP,
    JobStatus.CLAIMED: Verdict.KEEP,
    JobStatus.RUNNING: Verdict.KEEP,
    JobStatus.DONE: Verdict.SETTLE,
    JobStatus.FAILED: Verdict.SETTLE,
    JobStatus.DEAD_LETTER: Verdict.DEAD_LETTER,
    JobStatus.CANCELLED: Verdict.SETTLE,
}
HINT = Hint(job_id=JobId("j"), type="demo", pool=PoolId("default"))


def a_row(state: JobStatus) -> Known:
    return Known(job_id=JobId("j"), status=state, version=1, pool=PoolId("default"), attempts=0, last_error=None)


def a_context(**given: Any) -> BusContext:
    nobody: Any = None
    parts: dict[str, Any] = {
        "redis": nobody,
        "services": nobody,
        "job_streams": nobody,
        "state": BusState(),
        "clock": SystemClock(),
        "threads": SystemThreads(),
        "rhythm": Intervals(),
        "hooks": ReplicaHooks(wake=lambda: None, ring=lambda: None),
        **{name: Event() for name in ("lost", "ordered", "ingested")},
    }
    return BusContext(**{**parts, **given})


@pytest.mark.parametrize("state", JobStatus)
def test_the_row_decides_what_becomes_of_a_hint(state: JobStatus) -> None:
    assert judge(a_row(state)) is VERDICTS[state]


def test_a_hint_without_a_row_was_made_up() -> None:
    assert judge(None) is Verdict.QUARANTINE


@pytest.mark.parametrize(
    ("job_id", "good"),
    [("job-1", True), ("a" * 128, True), ("a" * 129, False), ("", False), ("a b", False), ("a\0", False)],
)
def test_only_what_could_be_an_id_is_looked_up(job_id: str, *, good: bool) -> None:
    assert possible(job_id) is good


def test_the_names_are_those_that_others_know() -> None:
    names = Names()
    assert names.jobs.name == "stream:orchestrator:inference_jobs"
    assert names.preloads.name == "stream:orchestrator:preloads"
    assert names.ingest.name == "stream:orchestrator:ingest_events"
    assert (names.control, names.dead) == ("stream:orchestrator:control", "stream:orchestrator:dlq")
    assert (names.jobs.group, names.preloads.group) == ("cg:inference", "cg:preloads:workers")
    assert names.jobs_of(PoolId("x")).group == "cg:inference:x"


def test_an_entry_carries_a_name_and_no_payload() -> None:
    assert hint_fields(HINT, "me") == {"job_id": "j", "type": "demo", "by": "me"}


def test_a_dead_letter_has_four_fields_of_bounded_length() -> None:
    letter = DeadLetter(job_id="j", origin_id="1-0", attempts=3, last_error="x" * 1_000_000)
    assert list(letter.fields()) == ["job_id", "origin_id", "attempts", "last_error"]
    assert len(letter.fields()["last_error"]) == 2000


def test_a_full_queue_drops_and_asks_for_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever submits never waits: the sweep repeats what was dropped."""
    monkeypatch.setattr(module, "ROOM", 3)
    state = BusState()
    context = a_context(state=state)
    announcer = Announcer(context)
    announcer.tell([HINT] * 2)
    assert not context.lost.is_set()
    announcer.tell([HINT] * 2)
    assert (state.counts[Count.DROPPED], context.lost.is_set()) == (1, True)
    context.lost.clear()
    announcer.tell([StreamMessage("control", {})])
    assert (state.counts[Count.DROPPED], context.lost.is_set()) == (2, True)


def test_what_a_replica_holds_never_looks_idle_to_another() -> None:
    assert Intervals(claim_idle=timedelta(milliseconds=300)).settle == timedelta(milliseconds=100)
    assert Intervals().settle == timedelta(seconds=1)


def test_faults_are_told_once_and_each_loop_for_itself() -> None:
    state = BusState()
    for _ in range(3):
        state.failed("listener", "away")
    state.failed("keeper", "gone")
    state.fine("listener")
    assert (state.fault, state.counts[Count.FAULTS]) == ("gone", 4)
    state.fine("keeper")
    assert state.fault is None


def test_entries_beyond_what_a_replica_can_look_after_are_let_go() -> None:
    """The stream stays bounded when a million jobs wait."""
    names, settled = Names(), list[str]()

    def take(_stream: Any) -> list[Entry]:
        return [Entry(names.jobs, f"{number}-0", {"job_id": "j", "by": "x"}) for number in range(3)]

    def settle(_stream: Any, ids: list[str]) -> None:
        settled.extend(ids)

    def listen(_after: Mapping[str, str]) -> Mapping[str, Any]:
        return {}

    redis: Any = SimpleNamespace(names=names, consumer="me", take=take, settle=settle, listen=listen)
    job_streams: Any = SimpleNamespace(streams=[names.jobs])
    woken: list[int] = []
    state = BusState()
    hooks = ReplicaHooks(wake=lambda: woken.append(1), ring=lambda: None)
    listener = Listener(a_context(redis=redis, job_streams=job_streams, state=state, hooks=hooks))
    listener.counted({names.jobs.name: MOST_HELD - 1})
    listener.turn()
    assert settled == ["1-0", "2-0"]
    assert (state.counts[Count.LET_GO], woken) == (2, [1])


def test_an_entry_that_is_read_twice_is_the_same_job() -> None:
    entry = Entry(Names().ingest, "7-1", {"type": "demo", "payload": "[1]", "agent": "root"})
    assert read(entry, "hand") == read(entry, "hand")
    new = read(entry, "hand")
    assert (new.job_id, new.payload, new.agent) == ("ingest-7-1", [1], "hand")


def test_jobs_added_by_hand_are_taken_wherever_the_clock_begins() -> None:
    """Only spans of a monotonic clock mean anything: it may count from below zero."""
    looked: list[str] = []

    def mine(_stream: Any, after: str) -> list[Entry]:
        looked.append(after)
        return []

    def take(_stream: Any) -> list[Entry]:
        return []

    redis: Any = SimpleNamespace(names=Names(), take=take, mine=mine)
    clock: Any = SimpleNamespace(monotonic=lambda: -300.0)
    nobody: Any = None
    context = a_context(redis=redis, clock=clock, rhythm=Intervals(look=timedelta(0)))
    ingest = Ingest(context, nobody, "hand", nobody)
    ingest.turn()
    assert looked == ["0-0"]


@pytest.mark.parametrize("payload", ["", "{", "[" * 50_000])
def test_a_payload_that_is_no_json_is_refused(payload: str) -> None:
    with pytest.raises(InvalidRequest, match=r"payload is (not JSON|nested deeper)"):
        read(Entry(Names().ingest, "7-1", {"type": "demo", "payload": payload}), "hand")
