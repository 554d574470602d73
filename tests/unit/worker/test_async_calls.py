"""Checkpoints on their way between a handler and the queue."""

from collections.abc import Mapping
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from herdsman.errors import StoreUnavailable
from herdsman.ids import JobId
from herdsman.jobs.model import ClaimKey, NewJob
from herdsman.jobs.protocol import ClaimRequest
from herdsman.testing.clocks import ManualClock
from herdsman.testing.memory_jobs import MemoryJobs
from herdsman.testing.queue import MemoryQueue
from herdsman.worker.job_run import AsyncCalls

PATIENCE_S = 10
OUTAGE = timedelta(seconds=25)


class Desk:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = MemoryQueue(MemoryJobs(self.clock))
        self.queue.jobs.submit(NewJob(type="demo"))
        self.key = self.queue.claim(ClaimRequest())[0].key
        self.calls = AsyncCalls(self.queue, self.clock, patience=OUTAGE)
        self.replies: SimpleQueue[Mapping[str, Any]] = SimpleQueue()

    def ask(self, key: ClaimKey | None = None, **word: object) -> Mapping[str, Any]:
        self.calls.run(key or self.key, {"ask": 5, **word}, self.replies.put)
        return self.replies.get(timeout=PATIENCE_S)


def test_a_checkpoint_is_brought_and_fetched() -> None:
    desk = Desk()
    assert desk.ask(checkpoint="get") == {"reply": 5, "value": None}
    desk.ask(checkpoint="put", value=[1])
    assert desk.ask(checkpoint="get") == {"reply": 5, "value": [1]}


def test_a_checkpoint_that_cannot_be_stored_is_refused_by_name() -> None:
    error = Desk().ask(checkpoint="put", value=float("nan"))["error"]
    assert error["kind"] == "refused"
    assert "checkpoint is nan" in error["said"]


def test_an_outage_is_waited_for_but_not_for_ever() -> None:
    desk = Desk()
    over_at = OUTAGE.total_seconds()

    def fail(word: str) -> None:
        if "checkpoint" in word and desk.clock.monotonic() < over_at:
            raise StoreUnavailable("restarting")

    desk.queue.before = fail
    assert "value" in desk.ask(checkpoint="get")
    over_at = 3 * over_at
    assert desk.ask(checkpoint="get")["error"] == {"said": "restarting"}
    assert desk.clock.monotonic() == 2 * OUTAGE.total_seconds()


def test_a_worker_that_leaves_does_not_wait_for_the_end_of_an_outage() -> None:
    desk = Desk()
    tries: list[str] = []

    def fail(word: str) -> None:
        if "checkpoint" in word:
            tries.append(word)
            desk.calls.close()
            raise StoreUnavailable("restarting")

    desk.queue.before = fail
    assert desk.ask(checkpoint="get")["error"] == {"said": "restarting"}
    assert len(tries) == 1


def test_an_old_claim_has_no_checkpoint() -> None:
    desk = Desk()
    old = ClaimKey(JobId(desk.key.job_id), desk.key.token - 1)
    assert "another's by now" in desk.ask(old, checkpoint="put", value=1)["error"]["said"]
