"""One life of the service, from start to restart: what it forgets when it ends."""

import threading
from collections.abc import Callable, Collection
from typing import Any

from herdsman.testing.comfyui.faults import Fault, Setting
from herdsman.testing.comfyui.hub import Hub, status
from herdsman.testing.comfyui.jobs import Job, Jobs, Past
from herdsman.testing.comfyui.setup import Setup
from herdsman.testing.comfyui.work import Interrupted, Made

FEATURES = {"supports_preview_metadata": True, "extension": {"manager": {"supports_v4": True}}}


LAST_WORDS_S = 0.02
"""Before a death, so that the answers which are under way get out: the same story each time."""


class Killed(Exception):
    """This life is over; whatever was going on in it ends here."""


class Life:
    def __init__(
        self,
        setup: Setup,
        run: Callable[["Life", Job], None],
        die: Callable[[Setting | None], None],
        *,
        number: int = 0,
        history: dict[str, Past] | None = None,
    ) -> None:
        self.number = number
        self.setup = setup
        self.hub = Hub(self.features())
        self.jobs = Jobs(history)
        self.cache: dict[str, Made] = {}
        self.dead = threading.Event()
        self.next_number = 0
        self._run = run
        self._die = die
        self._interrupted = False
        self._drop_cache = False
        # Set by an interrupt and by death: both end the sleep of a node that can be interrupted.
        self._roused = threading.Event()
        self._thread = threading.Thread(target=self._work, name="fake-comfyui-work", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """At once, in the middle of anything. May be called from anywhere, also from within."""
        self.dead.set()
        self._roused.set()
        self.jobs.close()
        self.hub.cut_all()

    def join(self) -> None:
        self._thread.join()

    def features(self) -> dict[str, Any]:
        return {**FEATURES, "max_upload_size": self.setup.most_upload_bytes}

    def queue(self, job: Job) -> bool:
        """False if the service trips over it: see `Jobs.put`."""
        smooth = self.jobs.put(job)
        self.tell_status()
        return smooth

    def tell_status(self) -> None:
        self.hub.tell("status", status(self.jobs.remaining), None)

    def interrupt(self) -> None:
        """Whatever runs, at the next chance."""
        self._interrupted = True
        self._roused.set()

    def check_interrupted(self) -> None:
        if self._interrupted:
            raise Interrupted

    @property
    def holds_memory(self) -> bool:
        return bool(self.cache) and not self._drop_cache

    def free_memory(self) -> None:
        """Answered at once, done after the job that runs."""
        self._drop_cache = True

    def sleep(self, seconds: float) -> None:
        if self.dead.wait(seconds / self.setup.speed):
            raise Killed

    def sleep_unless_interrupted(self, seconds: float) -> None:
        self._roused.wait(seconds / self.setup.speed)
        if self.dead.is_set():
            raise Killed
        self.check_interrupted()

    def hang(self) -> None:
        self.dead.wait()
        raise Killed

    def step(self, at: Collection[str], prompt_id: str) -> None:
        """A moment in the life of a job: here the service may die."""
        if self.dead.is_set():
            raise Killed
        setting = self.setup.faults.strikes(Fault.RESTART, at=at, prompt_id=prompt_id)
        if setting is not None:
            self.dead.wait(LAST_WORDS_S)
            self._die(setting)
            raise Killed

    def crash(self) -> None:
        """The end, until somebody starts it again."""
        self.dead.wait(LAST_WORDS_S)
        self._die(None)
        raise Killed

    def _work(self) -> None:
        try:
            while (job := self.jobs.take()) is not None:
                self._forget_what_is_not_wanted()
                self._interrupted = False
                self._roused.clear()
                self.tell_status()
                self._run(self, job)
        except Killed:
            return

    def _forget_what_is_not_wanted(self) -> None:
        if self._drop_cache:
            self.cache.clear()
            self._drop_cache = False
