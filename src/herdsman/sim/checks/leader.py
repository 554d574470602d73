"""Two may believe that they lead; only one can write."""

from collections.abc import Iterator

from herdsman.sim.checks.history import History


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
