"""The chain of timeouts and limits: which setting has to leave room for which, as one table."""

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from herdsman.settings.model import CATALOGUE, Origin, Settings

_NAME = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_TERM = re.compile(r"(?:(?P<times>\d+) \* )?(?P<name>[A-Z][A-Z0-9_]+)(?: / (?P<parts>\d+))?")
_COMPARED = re.compile(r" ([<>]=?) ")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Relation:
    name: str
    text: str
    """Compares two sums of settings, each perhaps multiplied or divided by a number."""
    because: str
    unless: str = ""
    """When it does not matter: `NAME is 0` or `NAME is not set`."""
    required: bool = True
    """Whether a start is refused when it does not hold; otherwise it is advice."""

    @property
    def reason(self) -> str:
        """The reason as a sentence of its own."""
        return self.because[0].upper() + self.because[1:]

    def check(self, settings: Settings) -> bool:
        name, _, state = self.unless.partition(" is ")
        if state == "0" and _amount(name, settings) == 0:
            return True
        if state == "not set" and settings.origin(name) is Origin.DEFAULT:
            return True
        left, op, right = _COMPARED.split(self.text)
        return _OPERATORS[op](_amount(left, settings), _amount(right, settings))

    def numbers(self, settings: Settings) -> str:
        return _NAME.sub(lambda name: _shown(name[0], settings), self.text)

    def sentence(self, settings: Settings) -> str:
        """What does not hold: each name with its value and where it came from, and why it matters."""

        def tell(name: re.Match[str]) -> str:
            return f"{name[0]} ({_shown(name[0], settings)}, {settings.origin(name[0])})"

        must = "must" if self.required else "should"
        said = _COMPARED.sub(rf" {must} be \1 ", self.text)
        return f"{_NAME.sub(tell, said)}: {self.because}"


def broken(settings: Settings) -> tuple[str, ...]:
    """A sentence for each relation that must hold and does not."""
    return tuple(each.sentence(settings) for each in RELATIONS if each.required and not each.check(settings))


def advice(settings: Settings) -> tuple[str, ...]:
    """A sentence for each relation that should hold and does not; a program logs them when it starts."""
    return tuple(each.sentence(settings) for each in RELATIONS if not each.required and not each.check(settings))


def _amount(expression: str, settings: Settings) -> float:
    total = 0.0
    for part in expression.split(" + "):
        term = _TERM.fullmatch(part)
        assert term is not None, f"{part!r} is no setting, nor a multiple or a part of one"
        value = CATALOGUE[term["name"]].value(settings)
        assert isinstance(value, int | float), f"{term['name']} is no number"
        total += int(term["times"] or 1) * value / int(term["parts"] or 1)
    return total


def _shown(name: str, settings: Settings) -> str:
    setting = CATALOGUE[name]
    return str(setting.kind.shown(setting.value(settings)))


RELATIONS: tuple[Relation, ...] = (
    # A job has one holder at a time.
    Relation("claims survive lost heartbeats", "4 * HEARTBEAT_INTERVAL_SEC <= CLAIM_TTL_SEC",
        "otherwise a few lost heartbeats take the job away from a worker that lives."),
    Relation("a worker stops before its job is given away", "SELF_FENCE_SEC < CLAIM_TTL_SEC",
        "otherwise a worker that is cut off still works when another one gets its job."),
    Relation("a worker does not stop between heartbeats", "HEARTBEAT_INTERVAL_SEC < SELF_FENCE_SEC",
        "otherwise a worker stops its job before its next heartbeat is due."),
    Relation("retries grow towards their cap", "RETRY_BACKOFF_BASE_SEC <= RETRY_BACKOFF_CAP_SEC",
        "otherwise the first retry waits longer than the longest wait."),
    Relation("stream entries outlive a heartbeat", "ORCH_CLAIM_IDLE_MS > 1000 * HEARTBEAT_INTERVAL_SEC",
        "otherwise entries of healthy workers are looked at again and again, though never taken.", required=False),
    # So has the memory of a GPU.
    Relation("the margin fits into a lease", "LEASE_MARGIN_SEC < LEASE_TTL_SEC",
        "otherwise a holder has to stop before its lease has begun."),
    Relation("a lease outlives a heartbeat", "HEARTBEAT_INTERVAL_SEC + LEASE_MARGIN_SEC < LEASE_TTL_SEC",
        "otherwise a holder has to stop before the heartbeat that renews its lease."),
    Relation("the usual lease may be asked for", "LEASE_TTL_SEC <= GPU_ORCHESTRATOR_LEASE_TTL",
        "otherwise a lease of the usual length is refused as too long."),
    # Workers are neither ended too early nor kept too long.
    Relation("a heartbeat is not overdue before it is due", "HEARTBEAT_INTERVAL_SEC < HEARTBEAT_TIMEOUT_SEC",
        "otherwise healthy workers are ended (without a value of its own the timeout is GPU_IDLE_TIMEOUT_SEC)."),
    Relation("the failsafe comes last", "HEARTBEAT_TIMEOUT_SEC <= FAILSAFE_STALE_THRESHOLD_SEC",
        "otherwise the last resort acts before the heartbeat check has."),
    Relation("stuck is longer than the work", "TASK_STUCK_TIMEOUT_SEC >= MAX_PROCESSING_SEC",
        "otherwise a job that reports no progress is taken for stuck while it still works.", unless="MAX_PROCESSING_SEC is not set", required=False),
    Relation("spare workers go sooner", "GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC <= GPU_IDLE_TIMEOUT_SEC",
        "otherwise a worker too many is kept longer than one that is wanted.", required=False),
    # So with machines.
    Relation("the floor is under the ceiling", "MIN_ACTIVE_GPUS <= MAX_ACTIVE_GPUS",
        "otherwise no size of the fleet is right.", unless="MAX_ACTIVE_GPUS is 0"),
    Relation("the pools' floor is under their ceiling", "GPU_POOL_MIN_WARM <= GPU_POOL_MAX_TOTAL",
        "otherwise no number of pools is right."),
    Relation("a slow create is not taken for a failed one", "PROVIDER_TIMEOUT_SEC < ABSENCE_WINDOW_SEC",
        "otherwise a machine may appear after its place has been given to another one."),
    Relation("starting ends before booting does", "SPAWNING_TIMEOUT_SEC <= BOOT_TIMEOUT_SEC",
        "otherwise a machine is ended before its worker has had its time to start.", required=False),
    # One replica leads.
    Relation("leadership survives lost renewals", "4 * LEADER_RENEW_SEC <= LEADER_TTL_SEC",
        "otherwise a few lost renewals end the term of a leader that lives."),
    Relation("an outage is known before workers stop", "LEADER_TTL_SEC + 2 * HEARTBEAT_INTERVAL_SEC <= SELF_FENCE_SEC",
        "otherwise workers stop their jobs in an outage of the database before they can be told to go on.", unless="OUTAGE_GRACE_SEC is 0", required=False),
    Relation("followers look more often than a term lasts", "GPU_ORCHESTRATOR_LEADER_LOOP_S <= LEADER_TTL_SEC",
        "otherwise nobody leads for longer than it takes to know that the leader is gone.", required=False),
    # A process watches its own loops.
    Relation("the watchdog spares a loop at work", "WATCHDOG_THRESHOLD_SEC > WAIT_TIME_SEC + MAX_PROCESSING_SEC",
        "otherwise a loop that waits and then works as long as it may is killed."),
    Relation("the watchdog looks often enough", "WATCHDOG_INTERVAL_SEC < WATCHDOG_THRESHOLD_SEC / 3",
        "otherwise a stalled loop is noticed much later than the threshold says."),
    Relation("not ready comes before killed", "READINESS_THRESHOLD_SEC <= WATCHDOG_THRESHOLD_SEC",
        "otherwise a process is killed before it was ever reported as not ready."),
    Relation("a stalled loop is killed before its message returns", "VISIBILITY_TIMEOUT_SEC > WATCHDOG_THRESHOLD_SEC + WATCHDOG_INTERVAL_SEC",
        "otherwise a message is delivered again while a stalled loop still holds it."),
    Relation("a message stays away for a stall after full work", "VISIBILITY_TIMEOUT_SEC > WATCHDOG_THRESHOLD_SEC + MAX_PROCESSING_SEC",
        "otherwise a loop that beats while it works and then stalls may hold a message that is delivered again.", required=False),
)  # fmt: skip
