"""A service in memory and a clock of its own, for one attempt at a job."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from herdsman.errors import ServiceUnavailable
from herdsman.jobs.protocol import Capabilities, Finished, Fitness, Heard, ServiceJob, Unknown, Verdict
from herdsman.worker.context import Alone, JobContext
from herdsman.worker.service_run import ServiceRun, Watching

Word = Heard | None
Look = Verdict | Exception


@dataclass
class Hand:
    """A clock that moves when somebody sleeps or listens."""

    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, duration: timedelta) -> None:
        self.now += duration.total_seconds()


@dataclass
class Pretend:
    """Says what it was told to say, in order; the last look is repeated."""

    clock: Hand
    words: list[Word] = field(default_factory=list[Word])
    looks: list[Look] = field(default_factory=list[Look])
    submits: list[Exception | str] = field(default_factory=list[Exception | str])
    fetches: list[Exception] = field(default_factory=list[Exception])
    capabilities: Capabilities = field(default_factory=Capabilities)
    log: list[str] = field(default_factory=list[str])
    name: str = "pretend"

    def submit(self, job: ServiceJob, external_id: str) -> str:  # noqa: ARG002
        self.log.append(f"submit {external_id}")
        if self.submits:
            outcome = self.submits.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        return external_id

    def attach(self, job: ServiceJob, external_id: str) -> None:  # noqa: ARG002
        self.log.append(f"attach {external_id}")

    def listen(self, external_id: str, silence: timedelta) -> Heard | None:  # noqa: ARG002
        word = self.words.pop(0) if self.words else None
        if word is None:
            self.clock.sleep(silence)
        return word

    def check(self, external_id: str) -> Verdict:
        self.log.append(f"check {external_id} at {self.clock.now:.0f}")
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0] if self.looks else Unknown("none")
        if isinstance(look, Exception):
            raise look
        return look

    def fetch(self, job: ServiceJob, external_id: str, finished: Finished) -> object:  # noqa: ARG002
        self.log.append(f"fetch {external_id}")
        if self.fetches:
            raise self.fetches.pop(0)
        return dict(finished.outputs)

    def cancel(self, external_id: str) -> None:
        self.log.append(f"cancel {external_id}")

    def fitness(self) -> Fitness:
        return Fitness()

    def close(self) -> None:
        self.log.append("close")

    def did(self, verb: str) -> list[str]:
        return [line for line in self.log if line.startswith(verb)]


DONE = Finished(outputs={"image": "a"}, seconds=41.0)
AWAY = ServiceUnavailable("nobody answers")


@dataclass
class Attempt:
    """One attempt, with everything that it can see."""

    service: Pretend
    link: Alone
    job: JobContext
    watching: Watching

    def run(self) -> object:
        return ServiceRun(job=self.job, connector=self.service, watching=self.watching, clock=self.service.clock).run()

    @property
    def marks(self) -> list[tuple[str, str]]:
        said = [word["service"] for word in self.link.said if "service" in word]
        return [(mark["id"], mark["status"]) for mark in said if isinstance(mark, dict)]

    @property
    def lines(self) -> list[str]:
        return [str(word["log"]) for word in self.link.said if "log" in word]


def attempt(
    words: Iterable[Word] = (),
    looks: Iterable[Look] = (),
    *,
    before: str | None = None,
    watching: Watching | None = None,
    submits: Iterable[Exception | str] = (),
    fetches: Iterable[Exception] = (),
    capabilities: Capabilities | None = None,
) -> Attempt:
    service = Pretend(Hand(), list(words), list(looks), list(submits), list(fetches))
    service.capabilities = capabilities or Capabilities()
    link = Alone()
    job = JobContext(type="pretend", job_id="j1", token=3, service_job_id=before, link=link)
    return Attempt(service, link, job, watching or Watching())
