"""`herdsman cycle` says why, whenever it ends with 1."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from herdsman.cli import control
from herdsman.cli.output import Output
from herdsman.fleet.actions import ActionReason, Code, SpawnWorker
from herdsman.fleet.decide import Planned
from herdsman.fleet.recording import Cycle, Outcome
from herdsman.fleet.snapshot import ListingFailed, Snapshot
from herdsman.ids import DEFAULT_POOL

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SPAWN = Planned("scale_up", SpawnWorker(DEFAULT_POOL, ActionReason(Code.UNKNOWN_INSTANCE, "why")))
UNSEEN = Snapshot(now=NOW, instances=ListingFailed("Runpod answered with 502"))


@pytest.mark.parametrize("output", Output)
@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (Cycle(started_at=None, epoch=3, seen=None, skipped="the database is away"), "the database is away"),
        (
            Cycle(started_at=NOW, epoch=3, seen=UNSEEN),
            "the provider could not be listed: Runpod answered with 502",
        ),
        (
            Cycle(
                started_at=NOW,
                epoch=3,
                seen=Snapshot(now=NOW),
                outcomes=(Outcome(SPAWN, done=True), Outcome(SPAWN, done=False, said="no such GPU is left")),
            ),
            "1 of 2 steps could not be done, the first is SpawnWorker: no such GPU is left",
        ),
    ],
)
def test_a_cycle_that_is_not_complete_says_why(
    ran: Cycle, said: str, output: Output, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: Any = SimpleNamespace(
        leadership=SimpleNamespace(campaign=lambda: None, resign=lambda: None),
        reconciler=SimpleNamespace(tick=lambda: ran),
    )

    def open_control(*_: object, **_how: object) -> Any:
        return opened

    def pushed(*_: object) -> None:
        """There is no gateway here."""

    nothing: Any = None
    monkeypatch.setattr(control, "open_control", open_control)
    monkeypatch.setattr(control, "push_cycle", pushed)
    with pytest.raises(typer.Exit) as ended:
        control.run_cycle(nothing, nothing, json=output is Output.JSON, dry_run=False, explain=False)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err == f"herdsman: the cycle is not complete: {said}\n"
