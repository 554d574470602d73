"""What a cycle saw is written down and read back without a loss."""

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NewType, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest
from herdsman.fleet.decide import decide
from herdsman.fleet.history_sql import applied, difference
from herdsman.fleet.model import Instance
from herdsman.fleet.recording import ROWS, Recording, plain, read, write
from herdsman.fleet.scaling import OURS
from herdsman.fleet.snapshot import ListingFailed, PoolSnapshot, Snapshot, WorkerSnapshot
from tests.support.fleets import a_snapshot, a_worker, snapshots

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(-(10**12), 10**12),
    bool: st.booleans(),
    float: st.floats(allow_nan=False) | st.integers(0, 99),
    datetime: st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    timedelta: st.timedeltas(timedelta(days=-999), timedelta(days=999)),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
}


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, whatever fields it will have one day."""
    if isinstance(kind, NewType):
        return anything(kind.__supertype__)
    if kind in LEAVES:
        return LEAVES[kind]
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        named = {each.name: st.deferred(lambda hint=hints[each.name]: anything(hint)) for each in fields(kind)}
        return st.builds(cast("type", kind), **named)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(anything(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(anything, inner))
    if inner:
        return st.one_of(*(st.none() if each is type(None) else anything(each) for each in inner))
    return st.sampled_from(kind)


@st.composite
def whole_snapshots(draw: st.DrawFn) -> Snapshot:
    """Every field of everything, and not only what makes sense together."""
    pools: list[PoolSnapshot] = draw(st.lists(anything(PoolSnapshot), max_size=2))
    listed = st.lists(anything(Instance), max_size=3).map(tuple) | st.builds(ListingFailed, st.text(max_size=9))
    return Snapshot(
        now=draw(LEAVES[datetime]),
        pools=tuple(pools),
        workers=tuple(draw(st.lists(anything(WorkerSnapshot), max_size=3))),
        instances=draw(listed),
        spent=draw(st.dictionaries(st.sampled_from(["hour", "day"]), LEAVES[Decimal])),
        most_together=draw(st.none() | st.integers(0, 99)),
        policies={pool.policy.scaling: OURS["threshold"] for pool in pools},
    )


def through_text(document: Any) -> Any:
    return json.loads(json.dumps(document))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(whole_snapshots(), st.integers(0, 99), st.none() | st.lists(st.integers(0, 99)).map(tuple))
def test_what_is_written_is_read_back(seen: Snapshot, planned: int, taken: tuple[int, ...] | None) -> None:
    recording = Recording(seen=seen, planned=planned, taken=taken)
    assert read(through_text(write(recording)), seen.policies) == recording


@given(snapshots())
def test_what_is_read_back_is_decided_on_alike(seen: Snapshot) -> None:
    again = read(through_text(write(Recording(seen=seen, planned=0))), OURS).seen
    assert repr(decide(again).steps) == repr(decide(seen).steps)


def test_every_kind_of_row_is_told() -> None:
    """A new dataclass inside a snapshot must be named among the rows."""
    found: set[Any] = set()

    def look(kind: Any) -> None:
        for inner in get_args(kind):
            look(inner)
        if is_dataclass(kind) and kind not in found:
            found.add(kind)
            for hint in get_type_hints(kind).values():
                look(hint)

    look(Snapshot)
    assert {each for each in found if each not in (Snapshot, ListingFailed)} == set(ROWS)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)
ROWS_OF_CELLS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 2), st.booleans() | st.integers(0, 1)).map(list),
    max_size=6,
)


@given(DOCUMENTS | ROWS_OF_CELLS, DOCUMENTS | ROWS_OF_CELLS)
def test_a_difference_leads_from_the_old_to_the_new(old: Any, new: Any) -> None:
    assert json.dumps(applied(old, through_text(difference(old, new)))) == json.dumps(new)


def test_a_row_that_changed_one_cell_is_told_by_that_cell() -> None:
    old = [["a", 1, 2], ["b", 3, 4], ["c", 5, 6]]
    assert difference(old, [["c", 5, 6], ["b", 3, 9], ["n", 0]]) == [
        "rows",
        [2, [1, ["cells", {"2": ["new", 9]}]], {"row": ["n", 0]}],
    ]


A_DOCUMENT = write(Recording(seen=a_snapshot(a_worker()), planned=1))


def changed(**parts: Any) -> dict[str, Any]:
    return through_text({**A_DOCUMENT, **parts})


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "version None"),
        (changed(version=2), "it is of version 2, and this version of Herdsman knows 1"),
        (changed(fields={}), "does not say what the cells of PoolSnapshot are"),
        (
            changed(fields={**A_DOCUMENT["fields"], "WorkerSnapshot": ["id", "colour"]}),
            "'colour' of WorkerSnapshot, which",
        ),
        (
            changed(fields={**A_DOCUMENT["fields"], "WorkerSnapshot": ["id"]}),
            "it has no 'pool' of WorkerSnapshot",
        ),
        (changed(seen={**A_DOCUMENT["seen"], "weather": 1}), "it has a 'weather', which this version"),
        (changed(seen={**A_DOCUMENT["seen"], "now": "noon"}), "'noon' where there should be int"),
        (changed(seen={**A_DOCUMENT["seen"], "now": True}), "'True' where there should be int"),
        (changed(seen={**A_DOCUMENT["seen"], "now": 10**30}), "cannot be read"),
        (changed(seen={**A_DOCUMENT["seen"], "spent": {"hour": "much"}}), "cannot be read"),
        (changed(seen={**A_DOCUMENT["seen"], "workers": [["w1"]]}), "cannot be read"),
        (changed(seen=[]), "cannot be read"),
        (changed(policies=[]), "the scaling policy 'threshold', which is not installed"),
        ({each: value for each, value in A_DOCUMENT.items() if each != "taken"}, "it has no 'taken'"),
    ],
)
def test_what_cannot_be_read_is_said(document: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=f"what this cycle saw .*{why}"):
        read(document, OURS)


def test_a_field_that_came_later_has_its_usual_value() -> None:
    """What an older version wrote is read as long as nothing is missing that it must have known."""
    older = through_text(A_DOCUMENT)
    at = older["fields"]["WorkerSnapshot"].index("wanted_revision")
    del older["fields"]["WorkerSnapshot"][at]
    for row in older["seen"]["workers"]:
        del row[at]
    assert read(older, OURS).seen == a_snapshot(a_worker())


def test_a_kind_of_value_that_nobody_has_thought_of_is_not_written() -> None:
    with pytest.raises(AssertionError, match="set is not written down anywhere yet"):
        plain({1})
