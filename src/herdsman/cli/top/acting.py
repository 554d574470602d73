"""The keys that change something: cancel, retry, drain. Each is done once, in a thread, after its question."""

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from herdsman.cli.top.asking import Answered, Broken, Refused, ask
from herdsman.cli.top.listing import Listing
from herdsman.cli.top.questions import Confirm
from herdsman.cli.top.table import Aim, JobAim, WorkerAim
from herdsman.cli.top.watching import Deed, Watching
from herdsman.client import calls, dashboard_calls
from herdsman.core.states import JOB, JobState
from herdsman.wire.jobs import RetryIn


class Acting(Watching):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel_job", "Cancel"),
        Binding("r", "retry_job", "Retry"),
        Binding("d", "drain_worker", "Drain"),
    ]

    def aim(self) -> Aim | None:
        """What the keys act on: the row under the cursor."""
        return self.focused.aim if isinstance(self.focused, Listing) else None

    def whole(self) -> Aim | None:
        """What the keys act on where no row means it: that which the whole page is about."""
        return None

    def action_cancel_job(self) -> None:
        job_id = self._job()
        if job_id is not None:
            question = Confirm(f"Cancel the job {job_id}?", f"the same as: herdsman cancel {job_id}")
            self.program.push_screen(question, self._if_yes(lambda: self._cancelled(job_id)))

    def action_retry_job(self) -> None:
        job_id = self._job()
        if job_id is not None:
            self.do(lambda: self._retried(job_id))

    def action_drain_worker(self) -> None:
        worker_id = self._worker()
        if worker_id is None:
            self.say("put the cursor on a worker: d drains it", "yellow")
            return
        question = Confirm(f"Drain the worker {worker_id}?", "it finishes what it holds, and leaves")
        self.program.push_screen(question, self._if_yes(lambda: self._drained(worker_id)))

    def do(self, deed: Callable[[], str]) -> None:
        ask(deed, self._tell)

    def on_deed(self, message: Deed) -> None:
        match message.outcome:
            case Answered(value=said):
                self.say(str(said))
                self.ask_now()
            case Refused(error=error):
                self.say(str(error), "bold red")
            case Broken(error=error):
                raise error
            case _:
                raise AssertionError(f"a deed ends in no other way: {message.outcome}")

    def _tell(self, outcome: Message) -> bool:
        return self.post_message(Deed(outcome))

    def _if_yes(self, deed: Callable[[], str]) -> Callable[[bool | None], None]:
        return lambda yes: self.do(deed) if yes else self.say("nothing was done", "yellow")

    def _job(self) -> str | None:
        match self.aim() or self.whole():
            case JobAim(job_id) | WorkerAim(jobs=(job_id,)):
                return job_id
            case WorkerAim(jobs=(_, _, *_)):
                self.say("this worker holds several jobs: Enter, then choose one", "yellow")
            case _:
                self.say("put the cursor on a job, or on a worker that holds one", "yellow")
        return None

    def _worker(self) -> str | None:
        aims = (aim for aim in (self.aim(), self.whole()) if isinstance(aim, WorkerAim))
        return next((aim.worker_id for aim in aims), None)

    def _cancelled(self, job_id: str) -> str:
        status = self.session.client.send(calls.cancel(job_id)).status
        if status == JobState.CANCELLED:
            return f"{job_id} is cancelled"
        if status in JOB.terminal:
            return f"{job_id} had ended before: {status}"
        return f"{job_id} is {status}; its worker is told to stop"

    def _retried(self, job_id: str) -> str:
        self.session.client.send(calls.retry(job_id, RetryIn()))
        return f"{job_id} is pending again"

    def _drained(self, worker_id: str) -> str:
        drained = self.session.client.send(dashboard_calls.drain_worker(worker_id))
        if drained.already:
            return f"{worker_id} was leaving already: {drained.status}"
        return f"{worker_id} is {drained.status}: it finishes what it holds, and leaves"
