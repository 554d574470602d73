"""What must be found in the history of pods, leases and leaders, by which checker and in which words."""

from dataclasses import replace
from typing import Any

import pytest

from herdsman.testing.simulation.checks import CHECKS, violations
from herdsman.testing.simulation.checks.history import (
    DatabaseCopy,
    End,
    History,
    LeaderWrite,
    LeaseRow,
    Limits,
    Move,
    Pod,
    Restore,
    Run,
    Use,
    WorkerRow,
)
from tests.unit.checks.spoiling import having, with_row
from tests.unit.checks.telling import a_good_one

TOTAL_MB = 24_000


def a_use(token: str, began: float, ended: float, **given: Any) -> Use:
    usual = Use(
        token=token,
        gpu="g",
        seq=int(began * 10),
        memory_mb=8000,
        exclusive=False,
        began=began,
        ended=ended,
        until=99,
    )
    return replace(usual, **given)


def used(*uses: Use) -> History:
    return History(uses=uses, gpu_mb={"g": TOTAL_MB, "other": TOTAL_MB})


def written(*writes: tuple[str, int]) -> History:
    return History(
        writes=tuple(LeaderWrite(holder=holder, epoch=epoch, at=at) for at, (holder, epoch) in enumerate(writes))
    )


def ran(*pods: Pod, alive: str = "", **more: Any) -> History:
    rows = (WorkerRow(id="w", status="active", version=1, instance=alive),) if alive else ()
    limits = Limits(most_pods=2, known_s=20)
    return replace(History(pods=pods, rows=rows, limits=limits, ended_at=100), **more)


def terminated(pod: Pod, at: float, **more: Any) -> History:
    gone = Move(kind="worker", id="w", seq=4, old="terminating", new="terminated", at=at)
    row = WorkerRow(id="w", status="terminated", version=4, instance=pod.name)
    return replace(History(pods=(pod,), rows=(row,), moves=(gone,), quiet=False), **more)


def a_pod(name: str, born: float, died: float | None, **more: Any) -> Pod:
    return replace(Pod(name=name, born=born, died=died), **more)


def among_databases(*ends: End, adopted_at: float | None = 0.0) -> History:
    """Pod a of the original database, pod b of a fresh one, and a copy of the original."""
    pods = (a_pod("a", 0, 9, started_by="original"), a_pod("b", 0, 9, started_by="fresh", ours=False))
    copy = DatabaseCopy(name="copy", of="original", since=1, adopted_at=adopted_at)
    return History(pods=pods, ends=ends, copies=(copy,), ended_at=100)


LEASES = {
    "too much at once": (
        used(a_use("a", 0, 5), a_use("b", 1, 2, memory_mb=17_000)),
        "g had 25000 MB in use at 1.000: a, b",
    ),
    "too much at one moment": (
        used(a_use("a", 0, 5, memory_mb=20_000), a_use("b", 1, 1)),
        "g had 28000 MB in use at 1.000: a, b",
    ),
    "an exclusive one is not alone": (
        used(a_use("a", 0, 5), a_use("b", 1, 2, exclusive=True, memory_mb=1)),
        "g was shared at 1.000 though somebody held it alone: a, b",
    ),
    "one comes beside an exclusive one": (
        used(a_use("a", 0, 5, exclusive=True), a_use("b", 1, 2, memory_mb=1)),
        "g was shared at 1.000 though somebody held it alone: a, b",
    ),
    "one number twice": (
        used(a_use("a", 0, 1), a_use("b", 2, 3, seq=0)),
        "g gave the number 0 twice, at 2.000 to b",
    ),
    "numbers fall": (
        used(a_use("a", 0, 1, seq=5), a_use("b", 2, 3, seq=4, asked=1.5)),
        "g gave b the number 4 at 2.000, after 5 had ended",
    ),
    "it goes on after its end": (used(a_use("a", 0, 5, until=4.9)), "a went on for 0.100 s"),
    "a late heartbeat revives it": (used(a_use("a", 0, 1, late="kept")), "was answered with kept"),
    "two rows with one number": (
        with_row("lease-1", seq=1)(a_good_one()),
        "gpu-1 gave the number 1 to the leases lease-0 and lease-1",
    ),
}
LEADER = {
    "an old epoch writes": (
        written(("one", 1), ("two", 2), ("one", 1)),
        "one wrote in epoch 1 at 2.000, after one of 2 had written",
    ),
    "two in one epoch": (
        written(("one", 1), ("two", 2), ("three", 2)),
        "three wrote in epoch 2 at 2.000, which is two's",
    ),
}
PODS = {
    "one too many": (
        ran(a_pod("a", 0, 9), a_pod("b", 1, 9), a_pod("c", 8, 9)),
        "3 pods were alive at 8.000 with c, and 2 are allowed",
    ),
    "one too many that is still there": (
        ran(a_pod("a", 0, None), a_pod("b", 1, None), a_pod("c", 8, 9)),
        "3 pods were alive at 8.000 with c",
    ),
    "one name twice": (ran(a_pod("a", 0, 1), a_pod("a", 2, 3)), "2 pods had the name a"),
    "somebody else's": (
        ran(a_pod("a", 0, 1, ours=False, ended_by_us=True)),
        "pod a is somebody else's, and we ended it",
    ),
    "one that nobody knows": (
        ran(a_pod("a", 0, 21)),
        "pod a, which no row knows, was left alive for 21.000 s until 21.000",
    ),
    "one that nobody knows and that is still there": (
        ran(a_pod("a", 79, None)),
        "was left alive for 21.000 s",
    ),
    "an orphan that is not found": (ran(a_pod("a", 0, 21, orphan=True)), "was left alive for 21.000 s"),
    "one that nobody needs": (
        ran(a_pod("a", 90, None)),
        "pod a has been alive since 90.000, and no worker that lives is in it",
    ),
    "one whose worker is gone": (
        with_row("w", status="terminated")(ran(a_pod("a", 0, None), alive="a")),
        "no worker that lives is in it",
    ),
    "its worker is marked terminated alive": (
        terminated(a_pod("a", 0, 9), at=5),
        "worker w was marked terminated at 5.000, and its pod a was not asked to end",
    ),
    "its worker is marked terminated before it comes": (
        terminated(a_pod("a", 6, 9), at=5),
        "was marked terminated at 5.000",
    ),
    "its place is held after it exited": (
        terminated(a_pod("a", 0, 5, exited=True), at=50, limits=Limits(replaced_s=25)),
        "pod a exited at 5.000 while it started, and w held its place until 50.000; 25 s are allowed",
    ),
    "its end is asked for afterwards": (
        terminated(a_pod("a", 0, 9, end_asked=5.1), at=5),
        "was marked terminated at 5.000",
    ),
}
OWNERSHIP = {
    "a fresh one ends a pod of the other": (
        among_databases(End(pod="a", database="fresh", at=5)),
        "database fresh ended pod a at 5.000, which database original started",
    ),
    "the first one ends a pod of a fresh one": (
        among_databases(End(pod="b", database="original", at=5)),
        "database original ended pod b at 5.000, which database fresh started",
    ),
    "a copy ends a pod of the original": (
        among_databases(End(pod="a", database="copy", at=5), adopted_at=None),
        "database copy ended pod a at 5.000, and nobody had adopted it",
    ),
    "a copy ends a pod before it is adopted": (
        among_databases(End(pod="a", database="copy", at=5), adopted_at=5.1),
        "and nobody had adopted it",
    ),
    "an adopted copy ends a pod of somebody else": (
        among_databases(End(pod="b", database="copy", at=5), adopted_at=4),
        "database copy ended pod b at 5.000, which database fresh started",
    ),
    "a copy starts a pod": (
        replace(among_databases(adopted_at=None), pods=(a_pod("c", 3, 9, started_by="copy", ours=False),)),
        "database copy started pod c at 3.000, and nobody had adopted it",
    ),
}


def a_start(number: int, asked: float, **given: Any) -> Pod:
    return Pod(name=f"herd--sim--{'0' * 12}-{number}--w{number}", born=asked, asked=asked, **given)


def restored(*pods: Pod, ends: tuple[End, ...] = (), runs: tuple[Run, ...] = (), **given: Any) -> History:
    """A backup that remembers one start took the place of the database at 20."""
    restores = (replace(Restore(at=20, spawned=1), **given),)
    return History(pods=pods, ends=ends, runs=runs, restores=restores, ended_at=200)


LATER = a_start(2, 10)
RESTORED = {
    "unnoticed": (restored(LATER), "which did not notice"),
    "a pod of the lost time is ended": (
        restored(LATER, ends=(End(pod=LATER.name, database="original", at=25),)),
        "was ended at 25.000",
    ),
    "an older one is ended": (
        restored(a_start(1, 0), LATER, ends=(End(pod="old", database="original", at=35),), recognised_at=30),
        "pod old was ended at 35.000",
    ),
    "a pod is started": (restored(a_start(1002, 40), recognised_at=30), "was started at 40.000"),
    "a number is used again": (
        restored(LATER, a_start(2, 60), recognised_at=30, adopted_at=50),
        "has a number that was used before, up to 2",
    ),
    "a token is given out again": (
        restored(
            runs=(
                Run(job_id="j", token=1, worker="a", began=15),
                Run(job_id="j", token=1, worker="b", began=40),
            ),
            recognised_at=30,
        ),
        "claim 1 of job j was given to a",
    ),
}


BAD: dict[str, dict[str, tuple[History, str]]] = {
    "leases": LEASES,
    "leader": LEADER,
    "pods": PODS,
    "ownership": OWNERSHIP,
    "restored": RESTORED,
}


@pytest.mark.parametrize(("check", "name"), [(check, name) for check, those in BAD.items() for name in those])
def test_a_bad_history_is_rejected(check: str, name: str) -> None:
    bad, sentence = BAD[check][name]
    found = list(CHECKS[check](bad))
    assert any(sentence in said for said in found), found
    assert f"{check}: {found[0]}" in violations(bad)


GOOD = {
    "one after the other": used(
        a_use("a", 0, 1),
        a_use("b", 0.5, 2),
        a_use("c", 1, 3, memory_mb=16_000),
        a_use("d", 3, 4, exclusive=True),
        a_use("e", 0, 9, gpu="other", memory_mb=24_000),
    ),
    "two that hear of their leases in another order": used(a_use("a", 0, 1, seq=5), a_use("b", 2, 3, seq=4, asked=0.5)),
    "a card of which nobody knows the size": History(uses=(a_use("a", 0, 1),)),
    "leases of no card have no number": History(
        rows=tuple(LeaseRow(id=token, status="released", version=2) for token in "ab")
    ),
    "a late heartbeat is refused": used(a_use("a", 0, 1, late="gone")),
    "leaders that follow each other": written(("one", 1), ("one", 1), ("two", 2), ("one", 3)),
    "a place that is free is taken at once": ran(a_pod("a", 0, 9), a_pod("b", 0, 8), a_pod("c", 8, 9)),
    "orphans and others' do not count": ran(
        a_pod("a", 0, 9), a_pod("b", 0, 9), a_pod("c", 0, 9, orphan=True), a_pod("d", 0, None, ours=False)
    ),
    "one that is known may stay": ran(a_pod("a", 0, None), alive="a"),
    "one that nobody could look for": having(last_fault_at=10.0)(ran(a_pod("a", 0, 21))),
    "each database ends its own": among_databases(
        End(pod="a", database="original", at=5), End(pod="b", database="fresh", at=5)
    ),
    "an adopted copy goes on": among_databases(End(pod="a", database="copy", at=5), adopted_at=5),
    "no limit on pods": ran(*(a_pod(f"p{number}", 0, 1) for number in range(9)), limits=Limits()),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_accepted(name: str) -> None:
    assert violations(GOOD[name]) == []


@pytest.mark.parametrize(
    "history",
    [
        terminated(a_pod("a", 0, 9, end_asked=5.0), at=5),
        terminated(a_pod("a", 0, 5), at=5),
        terminated(a_pod("a", 0, 5, exited=True), at=29, limits=Limits(replaced_s=25)),
        terminated(a_pod("a", 0, 9), at=5, limits=Limits(one_clock=False)),
    ],
    ids=["its end was asked for", "it is gone", "it exited a moment ago", "nobody can tell when that was"],
)
def test_a_worker_is_buried_in_time(history: History) -> None:
    assert list(CHECKS["pods"](history)) == []
