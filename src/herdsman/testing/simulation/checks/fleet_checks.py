"""Checks on the fleet: pods by the provider's own ledger, and one leader at a time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from herdsman.fleet.model import Stamp
from herdsman.states import WORKER, WorkerStatus
from herdsman.testing.simulation.checks.history import History, Pod, Run, WorkerRow

_ALIVE = frozenset(map(str, WORKER.live))
_RECOGNISED_S = 60.0
"""Replicas are back, one of them leads, and a cycle lists all pods."""
_GONE = WorkerStatus.TERMINATED.value


def pods(history: History) -> Iterator[str]:
    """P1: never more than the limit. P2: a name is used once. P3: every pod is known, or soon gone; others' are let be."""
    ours = [pod for pod in history.pods if pod.ours]
    if history.limits.most_pods is not None:
        yield from _too_many([pod for pod in ours if not pod.orphan], history.limits.most_pods)
    for name, count in Counter(pod.name for pod in ours).items():
        if count > 1:
            yield f"{count} pods had the name {name}"
    for pod in history.pods:
        if not pod.ours and pod.ended_by_us:
            yield f"pod {pod.name} is somebody else's, and we ended it"
    yield from _unknown(history, ours)
    if history.limits.one_clock:
        yield from _terminated_alive(history, ours)
        yield from _exited(history, ours)
    if history.quiet:
        rows = [row for row in history.rows if isinstance(row, WorkerRow)]
        wanted = {row.instance for row in rows if row.status in _ALIVE}
        for pod in ours:
            if pod.died is None and pod.name not in wanted:
                yield f"pod {pod.name} has been alive since {pod.born:.3f}, and no worker that lives is in it"


def _too_many(ours: Sequence[Pod], most: int) -> Iterator[str]:
    """Of one moment the deaths come first: only a place that is free was taken."""
    moments = [(pod.born, 1, pod.name) for pod in ours]
    moments += [(pod.died, -1, pod.name) for pod in ours if pod.died is not None]
    alive = 0
    for at, change, name in sorted(moments):
        alive += change
        if change > 0 and alive > most:
            yield f"{alive} pods were alive at {at:.3f} with {name}, and {most} are allowed"


def _unknown(history: History, ours: Sequence[Pod]) -> Iterator[str]:
    if history.limits.known_s is None:
        return
    known = {row.instance for row in history.rows if isinstance(row, WorkerRow)}
    for pod in ours:
        died = history.ended_at if pod.died is None else pod.died
        lived = died - max(pod.born, min(history.last_fault_at, died))
        if pod.name not in known and lived > history.limits.known_s:
            yield (
                f"pod {pod.name}, which no row knows, was left alive for {lived:.3f} s until {died:.3f},"
                f" and {history.limits.known_s} s are allowed"
            )


def _terminated_alive(history: History, ours: Sequence[Pod]) -> Iterator[str]:
    """P2, P7: who is only not seen for a while is not gone."""
    workers = {row.instance: row.id for row in history.rows if isinstance(row, WorkerRow)}
    terminated = {move.id: move.at for move in history.moves if move.kind == WORKER.kind and move.new == _GONE}
    for pod in ours:
        at = terminated.get(workers.get(pod.name, ""), inf)
        asked = inf if pod.end_asked is None else pod.end_asked
        died = inf if pod.died is None else pod.died
        if min(asked, died) > at:
            yield f"worker {workers[pod.name]} was marked terminated at {at:.3f}, and its pod {pod.name} was not asked to end"


def _exited(history: History, ours: Sequence[Pod]) -> Iterator[str]:
    """A worker that died while it started holds no place for long, where the provider says that it is gone."""
    allowed = history.limits.replaced_s
    workers = {row.instance: row.id for row in history.rows if isinstance(row, WorkerRow)}
    if allowed is None:
        return
    for pod in ours:
        worker = workers.get(pod.name)
        if not pod.exited or pod.died is None or worker is None:
            continue
        seen = [
            move.at
            for move in history.moves
            if (move.kind, move.id) == (WORKER.kind, worker) and move.new not in _ALIVE
        ]
        noticed = min(seen, default=history.ended_at)
        since = max(pod.died, history.last_fault_at)
        if noticed - since > allowed:
            yield (
                f"pod {pod.name} exited at {pod.died:.3f} while it started, and {worker} held its place"
                f" until {noticed:.3f}; {allowed} s are allowed"
            )


def ownership(history: History) -> Iterator[str]:
    """P11: a database ends only pods that it started; a copy starts and ends none before a person has adopted it."""
    started = {pod.name: pod.started_by for pod in history.pods}
    copies = {each.name: each for each in history.copies}
    adopted = {each.name: inf if each.adopted_at is None else each.adopted_at for each in history.copies}
    for end in history.ends:
        if end.at < adopted.get(end.database, -inf):
            yield f"database {end.database} ended pod {end.pod} at {end.at:.3f}, and nobody had adopted it"
        continued = copies[end.database].of if end.database in copies else end.database
        if started.get(end.pod, end.database) not in (end.database, continued):
            yield (
                f"database {end.database} ended pod {end.pod} at {end.at:.3f},"
                f" which database {started[end.pod]} started"
            )
    for pod in history.pods:
        if pod.born < adopted.get(pod.started_by, -inf):
            yield f"database {pod.started_by} started pod {pod.name} at {pod.born:.3f}, and nobody had adopted it"


def restored(history: History) -> Iterator[str]:
    """P11: a database that went back in time says so, starts and ends nothing before it is adopted, and gives out no
    number again that a later state of it has given out."""
    numbers = {pod.name: stamp.number for pod in history.pods if (stamp := Stamp.of(pod.name)) is not None}
    for restore in history.restores:
        older = [pod for pod in history.pods if pod.asked < restore.at]
        later = {pod.name for pod in older if numbers.get(pod.name, 0) > restore.spawned}
        recognised = inf if restore.recognised_at is None else restore.recognised_at
        adopted = inf if restore.adopted_at is None else restore.adopted_at
        since = max(restore.at, history.last_fault_at)
        for pod in history.pods:
            died = history.ended_at if pod.died is None else pod.died
            if pod.name in later and min(died, recognised) - since > _RECOGNISED_S:
                yield f"pod {pod.name} is newer than the database restored at {restore.at:.3f}, which did not notice"
            if recognised < pod.asked < adopted:
                yield f"pod {pod.name} was started at {pod.asked:.3f}, and nobody had adopted the restored database"
        for end in history.ends:
            if recognised < end.at < adopted or (end.pod in later and restore.at < end.at < adopted):
                yield f"pod {end.pod} was ended at {end.at:.3f}, and nobody had adopted the restored database"
        old = max((numbers[pod.name] for pod in history.pods if pod.asked <= recognised), default=0)
        for pod in history.pods:
            if pod.asked > recognised and pod.name in numbers and numbers[pod.name] <= old:
                yield f"pod {pod.name} has a number that was used before, up to {old}"
        first: dict[tuple[str, int], Run] = {}
        for run in sorted(history.runs, key=lambda run: run.began):
            other = first.setdefault((run.job_id, run.token), run)
            if other.worker != run.worker and other.began < restore.at and run.began > recognised:
                yield (
                    f"claim {run.token} of job {run.job_id} was given to {other.worker} at {other.began:.3f}, and"
                    f" after the restore to {run.worker} at {run.began:.3f}"
                )


def leader(history: History) -> Iterator[str]:
    """E1: in the order of the commits epochs never fall, and each of them has one holder."""
    highest = 0
    holders: dict[int, str] = {}
    for each in history.writes:
        if each.epoch < highest:
            yield f"{each.holder} wrote in epoch {each.epoch} at {each.at:.3f}, after one of {highest} had written"
        highest = max(highest, each.epoch)
        holder = holders.setdefault(each.epoch, each.holder)
        if holder != each.holder:
            yield f"{each.holder} wrote in epoch {each.epoch} at {each.at:.3f}, which is {holder}'s"
