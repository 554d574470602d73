"""Over all traces together: who keeps the target how often, and what it costs where it is kept."""

from collections.abc import Sequence

from herdsman.whatif.outcome import Outcome

HEADS = (
    "",
    "keeps the target",
    "cheapest that does",
    "cost of work",
    "cost beside the cheapest that keeps it",
)


def standing(title: str, runs: Sequence[Sequence[Outcome]], target: float) -> str:
    """The last of each run is the bound, which is no rival."""
    rivals = [run[:-1] for run in runs]
    rows = [HEADS, ("---", *("---:" for _ in HEADS[1:]))]
    rows += [_row([run[place] for run in rivals], rivals, target) for place in range(len(rivals[0]))]
    head = f"## {title} together\n\n{len(runs)} in all; the target of {target:.0f} s is kept when 95 of 100 jobs wait no longer.\n"
    return "\n".join([head, *(f"| {' | '.join(cells)} |" for cells in rows)])


def _row(mine: Sequence[Outcome], rivals: Sequence[Sequence[Outcome]], target: float) -> tuple[str, ...]:
    kept = [(each, _cheapest(run, target)) for each, run in zip(mine, rivals, strict=True) if _keeps(each, target)]
    beside = sum(each.gpu_hours / best for each, best in kept) / len(kept) if kept else 0.0
    wins = sum(1 for each, best in kept if each.gpu_hours <= best)
    works = [each.utilisation for each in mine if each.utilisation and not each.unfinished]
    cost = sum(1 / each for each in works) / len(works) if works else 0.0
    return (mine[0].name, str(len(kept)), str(wins), f"{cost:.2f}", f"{beside:.2f}" if kept else "")


def _cheapest(run: Sequence[Outcome], target: float) -> float:
    return min(each.gpu_hours for each in run if _keeps(each, target))


def _keeps(each: Outcome, target: float) -> bool:
    return not each.unfinished and each.wait_p95_s <= target
