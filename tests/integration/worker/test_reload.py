"""`herdsman worker --dev`: a file is saved, and the next job runs what it says."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from herdsman.ids import WorkerId
from herdsman.settings import load_settings
from herdsman.states import JobStatus
from tests.conftest import Backend
from tests.integration.worker.test_real_worker import COMMAND, QUICK, RealWorker
from tests.integration.worker.worker_programs import eventually
from tests.support.api_server import serving

Start = Callable[[str], RealWorker]
HANDLER = """\
from herdsman import handler
from parts.words import WORD


@handler({kind!r})
def say(job):
    return {text}
"""


@pytest.fixture
def start(sqlite: Backend, tmp_path: Path) -> Iterator[Start]:
    """A worker of the module `jobs` in the directory, which begins with this text."""
    url = sqlite.fresh()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "words.py").write_text("WORD = 'one'\n")
    here = {"DATABASE_URL": url, "LOCAL_STATE_DIR": str(tmp_path)}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **here}
    with ExitStack() as stack:

        def started(text: str) -> RealWorker:
            write(tmp_path, text)
            services = stack.enter_context(serving(load_settings(here, tmp_path)))
            log = stack.enter_context((tmp_path / "log").open("wb"))
            process = subprocess.Popen(
                [*COMMAND, "--dev", "--module", "jobs"],
                cwd=tmp_path,
                env={**environment, "WORKER_ID": "dev", **QUICK},
                stdout=log,
                stderr=log,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            worker = RealWorker(services, tmp_path, process)
            worker.promote(WorkerId("dev"))
            return worker

        yield started
    sqlite.drop(url)


def write(place: Path, text: str) -> None:
    (place / "jobs.py").write_text(text)


def a_handler(text: str, kind: str = "say") -> str:
    return HANDLER.format(text=text, kind=kind)


def said(worker: RealWorker, words: str, times: int = 1) -> None:
    eventually(lambda: worker.said().count(words) >= times or worker.process.poll() is not None)
    assert worker.said().count(words) >= times, worker.said()


def test_the_next_job_runs_what_was_saved_last(start: Start) -> None:
    worker = start(a_handler("1"))
    assert worker.run("say").result == 1
    for number in (2, 3, 4):  # as long as each other, and within one second
        write(worker.place, a_handler(str(number)))
        said(worker, "handlers are loaded: demo, say", number)
        assert worker.run("say").result == number
    assert worker.leave() == 0


def test_a_module_that_a_handler_imports_counts_too(start: Start) -> None:
    worker = start(a_handler("WORD"))
    assert worker.run("say").result == "one"
    (worker.place / "parts" / "words.py").write_text("WORD = 'two'\n")
    said(worker, "handlers are loaded", 2)
    assert worker.run("say").result == "two"


def test_a_mistake_is_shown_and_the_old_handlers_go_on(start: Start) -> None:
    worker = start(a_handler("1"))
    assert worker.run("say").result == 1
    write(worker.place, "from herdsman import handler\n\n\ndef broken(:\n    pass\n")
    said(worker, "the handlers cannot be loaded, the old ones go on until that is repaired")
    assert 'jobs.py", line 4' in worker.said()
    assert "SyntaxError" in worker.said()
    assert worker.run("say").result == 1
    write(worker.place, "import missing_module\n" + a_handler("2"))
    said(worker, "No module named 'missing_module'")
    assert worker.run("say").result == 1
    write(worker.place, a_handler("3"))
    said(worker, "handlers are loaded", 2)
    assert worker.run("say").result == 3


def test_the_job_at_hand_is_finished_by_the_old_handler(start: Start) -> None:
    slow = "__import__('time').sleep(2) or 'old'"
    worker = start(a_handler(slow))
    job, following = worker.submit("say"), worker.submit("say")
    eventually(lambda: worker.job(job).status is JobStatus.RUNNING)
    write(worker.place, a_handler("'new'"))
    assert worker.ended(job).result == "old"
    assert worker.ended(following).result == "new"
    assert worker.job(following).attempts == 1


def test_a_new_type_is_taken_without_a_restart(start: Start) -> None:
    worker = start(a_handler("1"))
    job = worker.submit("other")
    assert worker.run("say").result == 1
    assert worker.job(job).status is JobStatus.PENDING
    write(worker.place, a_handler("2", kind="other"))
    assert worker.ended(job).result == 2


def test_a_worker_that_begins_with_a_mistake_waits_for_its_end(start: Start) -> None:
    worker = start("def broken(:\n")
    said(worker, "it is tried again when a file changes")
    write(worker.place, a_handler("1"))
    assert worker.run("say").result == 1
