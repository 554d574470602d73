"""Compares several replays: which settings are worth their cost, and which one to choose."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from herdsman.errors import InvalidRequest
from herdsman.whatif.outcome import Outcome

MOST_REPLAYS = 200
_RANGE = re.compile(r"(-?[0-9]{1,12})\.\.(-?[0-9]{1,12})(?::([0-9]{1,12}))?")


@dataclass(frozen=True, slots=True)
class Advice:
    best: Outcome | None
    said: str


def assignments(given: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` for each."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise InvalidRequest(f"{option} {each!r} is not NAME=VALUE, such as MAX_ACTIVE_GPUS=20")
        found[name.strip()] = value.strip()
    return found


def combinations(sweeps: Sequence[str]) -> list[dict[str, str]]:
    """Every choice of one value from each sweep, `NAME=A..B`, `NAME=A..B:STEP` or `NAME=A,B,C`."""
    ranges = {name: values(name, text) for name, text in assignments(sweeps, "--sweep").items()}
    size = 1
    for each in ranges.values():
        size *= len(each)
    if size > MOST_REPLAYS:
        raise InvalidRequest(f"the sweeps make {size} replays, more than {MOST_REPLAYS}: use larger steps")
    return [dict(zip(ranges, chosen, strict=True)) for chosen in product(*ranges.values())]


def values(name: str, text: str) -> list[str]:
    matched = _RANGE.fullmatch(text)
    if matched is None:
        if ".." in text or not all(each.strip() for each in text.split(",")):
            raise InvalidRequest(
                f"--sweep {name}={text} is neither a range such as 0..4 nor a list such as 1,2,4"
            )
        return [each.strip() for each in text.split(",")]
    first, last, step = int(matched[1]), int(matched[2]), int(matched[3] or 1)
    if last < first or step < 1:
        raise InvalidRequest(
            f"--sweep {name}={text} holds nothing: begin with the smaller number, in steps of 1 or more"
        )
    if (last - first) // step >= MOST_REPLAYS:
        raise InvalidRequest(f"--sweep {name}={text} holds more than {MOST_REPLAYS} values: use larger steps")
    return [str(each) for each in range(first, last + 1, step)]


def worthwhile(found: Sequence[Outcome]) -> list[Outcome]:
    """Those of which no other is both cheaper and quicker; the cheapest first."""
    kept: list[Outcome] = []
    for each in sorted(found, key=lambda one: (one.gpu_hours, one.wait_p95_s)):
        if not each.unfinished and (not kept or each.wait_p95_s < kept[-1].wait_p95_s):
            kept.append(each)
    return kept


def advice(found: Sequence[Outcome], target_s: float) -> Advice:
    """The cheapest that keeps the target; where none does, the quickest of those that are worth their money."""
    front = worthwhile(found)
    if not front:
        return Advice(None, "no replay ended all its jobs: allow more workers, or look at the failing starts")
    within = [each for each in front if each.wait_p95_s <= target_s]
    best = within[0] if within else front[-1]
    evidence = f"95 of 100 jobs wait at most {best.wait_p95_s:.0f}s for {best.gpu_hours:.1f} GPU-hours"
    if not within:
        return Advice(
            best, f"none keeps the target of {target_s:.0f}s; {best.name} comes nearest: {evidence}"
        )
    first, beside = found[0], ""
    if first is not best and first.gpu_hours:
        share = best.gpu_hours / first.gpu_hours - 1
        beside = (
            f", which is {abs(share):.0%} {'less' if share < 0 else 'more'} than {first.name}"
            f" ({first.wait_p95_s:.0f}s, {first.gpu_hours:.1f} GPU-hours)"
        )
    return Advice(
        best, f"{best.name} is the cheapest that keeps the target of {target_s:.0f}s: {evidence}{beside}"
    )


def labelled(policy: str, chosen: Mapping[str, str]) -> str:
    return " ".join([policy, *(f"{name}={value}" for name, value in chosen.items())])
