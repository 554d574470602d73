"""A real `herdsman worker` under load is told to serve another model: nothing is lost, and memory is never short."""

import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from herdsman.context import Services
from herdsman.fleet import sql as fleet_sql
from herdsman.ids import JobId, PoolId, WorkerId
from herdsman.jobs.model import NewJob
from herdsman.jobs.protocol import Load, to_variables
from herdsman.pools.commands import find_pool, start_pool, swap_pool
from herdsman.pools.rules import NewPool, ServedBy, Serves
from herdsman.ports import SystemClock
from herdsman.states import JobStatus
from tests.conftest import Backend
from tests.integration.worker.office import open_office
from tests.integration.worker.test_real_worker import COMMAND, real_worker
from tests.integration.worker.worker_programs import ENDS, ROOT, eventually
from tests.worker_queue import BreakableQueue, StoredJob, StoredJobs

A = Load(revision=1, model="org/a", adapter="org/a-style", preload=("vae",))
B = Load(revision=2, model="org/b")


@dataclass
class Shop:
    queue: BreakableQueue
    process: "subprocess.Popen[bytes]"
    place: Path

    def submit(self, kind: str, **wanted: Any) -> JobId:
        return self.queue.jobs.submit(NewJob(type=kind, payload={"seconds": 0.01}, max_attempts=1, **wanted))

    def job(self, job_id: JobId) -> StoredJob:
        return self.queue.jobs.job(job_id)

    def wait(self, holds: Callable[[], object]) -> None:
        eventually(lambda: holds() or self.process.poll() is not None)
        assert holds(), self.said()

    def order(self, load: Load) -> None:
        """And a job, since an idle worker hears of it only when it has waited for one long enough."""
        self.queue.load = load
        beats = self.queue.words.count("beat")
        self.wait(lambda: self.queue.words.count("beat") > beats + 1)
        self.submit("infer")

    def ended(self, ids: list[JobId]) -> int:
        return sum(self.job(each).state in ENDS for each in ids)

    def said(self) -> str:
        return (self.place / "log").read_text()

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / "ledger").read_text().splitlines()]


@contextmanager
def a_shop(place: Path, load: Load) -> Generator[Shop]:
    queue = BreakableQueue(StoredJobs(SystemClock()))
    usual = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(ROOT)}
    own = {
        "API_TOKEN": "any",
        "FAKE_GPUS": "1",
        "HEARTBEAT_INTERVAL_SEC": "0.1",
        "LEDGER": str(place / "ledger"),
        "LOCAL_STATE_DIR": str(place),
        "WORKER_MODULES": "tests.integration.worker.swapping",
        "WORKER_NODE_ID": "box-7",
    }
    with open_office(queue) as office, (place / "log").open("wb") as log:
        here = {"API_URL": office.url, **to_variables(load)}
        process = subprocess.Popen(COMMAND, cwd=place, env={**usual, **own, **here}, stdout=log, stderr=log)
        try:
            yield Shop(queue, process, place)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("kind", ["infer", "infer_many"])
def test_a_swap_under_load_loses_no_job_and_both_models_are_never_there_at_once(tmp_path: Path, kind: str) -> None:
    """S2, swap: jobs before it run with the old model, jobs after it with the new one."""
    with a_shop(tmp_path, A) as shop:
        ids = [shop.submit(kind) for _ in range(60)]
        shop.wait(lambda: shop.ended(ids) >= 20)
        shop.queue.load = B
        shop.wait(lambda: shop.queue.revision == 2)
        ids += [shop.submit(kind) for _ in range(20)]
        shop.wait(lambda: shop.ended(ids) == len(ids))
        assert shop.queue.models == ("org/b",)
        assert shop.queue.reports[-1].node == "box-7"
        assert [each.uuid for each in shop.queue.reports[-1].devices] == ["FAKE-w1-0"]
    jobs = [shop.job(each) for each in ids]
    # What was taken ahead of the swap and went back has another token by now, and no attempt more.
    assert {(job.state, job.row.attempts, job.row.interruptions) for job in jobs} == {(JobStatus.DONE, 1, 0)}
    assert all(job.result["loaded"] == [job.result["model"]] for job in jobs)
    ran = [job.result["model"] for job in jobs]
    swapped = ran.index("org/b")
    assert ran == ["org/a"] * swapped + ["org/b"] * (len(ran) - swapped)
    assert 20 <= swapped <= 60
    assert [(each["model"], each["beside"]) for each in shop.ledger()] == [("org/a", []), ("org/b", [])]
    assert jobs[0].result["told"] == to_variables(A)
    assert jobs[-1].result["told"] == to_variables(B)


def test_a_swap_to_something_that_cannot_be_loaded_stalls_and_costs_no_job(tmp_path: Path) -> None:
    with a_shop(tmp_path, A) as shop:
        before = [shop.submit("infer") for _ in range(5)]
        shop.wait(lambda: shop.ended(before) == 5)
        shop.order(Load(revision=2, model="broken"))
        shop.wait(lambda: shop.queue.trouble)
        after = [shop.submit("infer") for _ in range(5)]
        shop.wait(lambda: shop.ended(after) == 5)
        shop.order(Load(revision=3, model="org/c"))
        shop.wait(lambda: shop.queue.revision == 3)
        assert shop.queue.trouble is None
        last = shop.submit("infer")
        shop.wait(lambda: shop.ended([last]))
    found = [shop.job(each) for each in (*before, *after, last)]
    assert {job.state for job in found} == {JobStatus.DONE}
    assert [job.result["model"] for job in found] == ["org/a"] * 10 + ["org/c"]
    assert [(each["model"], each["beside"]) for each in shop.ledger()] == [
        ("org/a", []),
        ("org/a", []),
        ("org/c", []),
    ]
    assert "revision 2 could not be loaded: the setup load failed: OSError('the weights are gone')" in shop.said()


def test_a_job_that_names_a_model_leaves_it_with_the_worker(tmp_path: Path) -> None:
    with a_shop(tmp_path, A) as shop:
        job_id = shop.submit("infer", model="org/z")
        shop.wait(lambda: shop.ended([job_id]))
        shop.wait(lambda: shop.queue.models == ("org/a", "vae", "org/z"))
    assert (shop.job(job_id).result["model"], shop.job(job_id).result["adapter"]) == ("org/z", None)


def test_a_worker_of_a_pool_in_the_database_follows_its_swap(sqlite: Backend, tmp_path: Path) -> None:
    """Nobody told this one at its start what its pool serves."""
    url, pool = sqlite.fresh(), PoolId("studio")
    own = {"WORKER_MODULES": "tests.integration.worker.swapping", "LEDGER": str(tmp_path / "ledger")}
    with real_worker(url, tmp_path, pool=pool, **own) as worker:
        services, worker_id = worker.services, WorkerId(tmp_path.name)
        asked = NewPool(pool_id=pool, serves=Serves(model="org/a"), served_by=ServedBy.HAND)
        for revision, model in ((1, "org/a"), (2, "org/b")):
            if revision == 1:
                start_pool(services, asked)
            else:
                swap_pool(services, pool, {"model": model})
            offer_revision(services, worker_id, revision)
            eventually(lambda: find_pool(services, pool).at_revision == 1)
            job = worker.run("infer", {"seconds": 0.01}, pool=pool)
            assert (job.status, job.result["model"]) == (JobStatus.DONE, model)  # type: ignore[index]
        assert worker.leave() == 0, worker.said()
    ledger = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert [(each["model"], each["beside"]) for each in ledger] == [(None, []), ("org/a", []), ("org/b", [])]
    sqlite.drop(url)


def offer_revision(services: Services, worker_id: WorkerId, revision: int) -> None:
    """As the control loop would."""
    services.database.transact(lambda tx: fleet_sql.assign_revision(tx, worker_id, revision))


def test_a_worker_whose_pool_names_nonsense_says_which_variable(tmp_path: Path) -> None:
    with a_shop(tmp_path, Load(revision=1, model="not a name")) as shop:
        assert shop.process.wait(60) != 0
        assert "HERDSMAN_MODEL is 'not a name'" in shop.said()
