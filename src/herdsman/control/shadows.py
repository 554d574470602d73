"""What a shadow policy would have done, as it is written down with a cycle."""

from collections.abc import Sequence
from dataclasses import asdict

from herdsman.core.shadow import Compared

MOST_POOLS = 50


def documents(compared: Sequence[Compared]) -> list[dict[str, object]]:
    """What differs comes first, and alone has its details."""
    ordered = sorted(compared, key=lambda each: (not each.differs and not each.error, each.pool))
    return [_document(each) for each in ordered[:MOST_POOLS]]


def outcome(compared: Sequence[Compared]) -> str | None:
    """Of a whole cycle, in one word; None where no pool has a shadow."""
    if not compared:
        return None
    if any(each.error for each in compared):
        return "failed"
    return "differs" if any(each.differs for each in compared) else "agrees"


def _document(each: Compared) -> dict[str, object]:
    head: dict[str, object] = {"pool": each.pool, "policy": each.policy, "differs": each.differs}
    if each.error:
        return {**head, "live": asdict(each.live), "error": each.error}
    if not each.differs or each.shadow is None:
        return head
    return {**head, "live": asdict(each.live), "shadow": asdict(each.shadow)}
