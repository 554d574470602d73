"""Which gates are closed: looked at a few times a second, and the same for all replicas."""

from collections.abc import Mapping
from threading import Lock

import structlog

from herdsman.core.control_policy import ControlPolicy
from herdsman.core.gating import GATES, Closed, Limit, Load, Shut, turned
from herdsman.db.connection import Database, Tx
from herdsman.db.errors import Duplicate
from herdsman.ports import Clock
from herdsman.store import admission

log = structlog.get_logger()

FRESH_S = 0.5


class Gatekeeper:
    """Safe to share between threads: one of them looks, the others go on with what was last seen."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._looking = Lock()
        self._seen: tuple[int, Closed] | None = None
        """For which version of the policy, and what."""
        self._next = 0.0

    def __call__(self, policy: ControlPolicy) -> Closed:
        if not policy.gates.any:
            return {}
        seen = self._seen
        known = seen is not None and seen[0] == policy.version
        if seen is not None and known and self._clock.monotonic() < self._next:
            return seen[1]
        if not self._looking.acquire(blocking=not known):
            return seen[1] if seen is not None else {}
        try:
            self._next = self._clock.monotonic() + FRESH_S
            found = look(self._database, policy)
            self._seen = (policy.version, found)
            return found
        finally:
            self._looking.release()


def look(database: Database, policy: ControlPolicy) -> Closed:
    """Written only when a gate turns, so that the next one who looks, here or elsewhere, knows the side it is on."""
    if not policy.gates.any:
        return {}
    load, before = database.read(lambda tx: _see(tx, policy))
    now = turned(policy.gates, load, before)
    changed = {gate: now.get(gate) for gate in GATES if now.get(gate) != before.get(gate)}
    if changed:
        _write(database, changed, load)
    return now


def _see(tx: Tx, policy: ControlPolicy) -> tuple[Load, Closed]:
    gates = policy.gates
    marks = {
        Limit.GPU_MEMORY: gates.gpu_memory_high_pct,
        Limit.DEPTH: gates.queue_high,
        Limit.OLDEST: gates.oldest_high,
    }
    wanted = [gate for gate, mark in marks.items() if mark is not None]
    load = admission.look(tx, wanted, but=policy.cpu_pool, deepest=gates.queue_high or 1)
    return load, admission.closed(admission.shut_gates(tx, [gate.value for gate in GATES]))


def _write(database: Database, changed: Mapping[Limit, Shut | None], load: Load) -> None:
    def write(tx: Tx) -> None:
        for gate, shut in changed.items():
            admission.put_gate(tx, gate.value, shut)

    try:
        database.transact(write)
    except Duplicate:  # another replica saw the same and was faster
        return
    for gate, shut in changed.items():
        word = "gate.opened" if shut is None else "gate.closed"
        log.warning(word, gate=gate.value, depth=load.depth, gpu_used_mb=load.gpu_used_mb)
