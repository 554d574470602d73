"""Payloads and results: what every database keeps is accepted, what one of them would lose is refused by its place."""

import json
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.core.body import MAX_DEPTH, Json, encode, fingerprint
from herdsman.core.errors import InvalidRequest, TooLarge

Wrap = Callable[[object], object]
PLENTY = 10**7
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def in_a_list(inner: object) -> object:
    return [inner]


def in_an_object(inner: object) -> object:
    return {"k": inner}


def in_a_tuple(inner: object) -> object:
    return (inner,)


@given(JSON)
def test_json_comes_back_as_it_went_in(value: Json) -> None:
    assert repr(json.loads(encode(value, what="payload", limit=PLENTY))) == repr(value)


@given(JSON)
def test_the_size_is_counted_in_bytes_and_the_limit_is_exact(value: Json) -> None:
    size = len(encode(value, what="payload", limit=PLENTY).encode())
    assert encode(value, what="payload", limit=size)
    with pytest.raises(TooLarge, match=f"payload is {size:,} bytes, the limit is {size - 1:,}"):
        encode(value, what="payload", limit=size - 1)


@given(
    st.recursive(
        st.none() | st.text() | st.floats() | st.binary() | st.sets(st.integers()), st.lists, max_leaves=5
    )
)
def test_whatever_is_sent_it_is_kept_or_refused_with_an_error_of_ours(value: object) -> None:
    try:
        text = encode(value, what="payload", limit=1000)
    except InvalidRequest:
        return
    assert text.encode().count(b"\0") == 0
    assert json.loads(text) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"a": [1, float("nan")]}, r"payload\.a\[1\] is nan: JSON has no such number"),
        (float("inf"), "payload is inf"),
        (-float("inf"), "payload is -inf"),
        ("a\0b", "payload contains a NUL character"),
        ({"k\0": 1}, "payload contains a NUL character"),
        ({"a": {"b": "\ud800"}}, r"payload\.a\.b contains half of a surrogate pair"),
        ({"\udfff": 1}, "payload contains half of a surrogate pair"),
        ({1: 2}, "payload has the key 1: keys must be text"),
        ({"a": {None: 2}}, r"payload\.a has the key None: keys must be text"),
        ({"a": b"bytes"}, r"payload\.a is a bytes: only JSON values can be stored"),
        ([{1, 2}], r"payload\[0\] is a set: only JSON values can be stored"),
        (object(), "payload is a object: only JSON values can be stored"),
        pytest.param(10**5000, "payload cannot be written as JSON", id="huge"),
        pytest.param({"a": [10**5000]}, "payload cannot be written as JSON", id="huge-inside"),
    ],
)
def test_a_refusal_names_the_place(value: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        encode(value, what="payload", limit=PLENTY)


def test_a_pair_of_surrogates_that_belong_together_is_one_character() -> None:
    assert encode("\U0001f600", what="payload", limit=6) == '"\U0001f600"'


@pytest.mark.parametrize("wrap", [in_a_list, in_an_object, in_a_tuple])
def test_nesting_has_a_limit(wrap: Wrap) -> None:
    assert encode(nested(wrap, MAX_DEPTH), what="payload", limit=PLENTY)
    with pytest.raises(InvalidRequest, match="payload is nested deeper than 32 levels"):
        encode(nested(wrap, MAX_DEPTH + 1), what="payload", limit=PLENTY)


def test_hostile_nesting_does_not_exhaust_the_stack() -> None:
    with pytest.raises(InvalidRequest, match="nested deeper"):
        encode(nested(in_a_list, 100_000), what="payload", limit=PLENTY)


def test_something_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InvalidRequest, match="nested deeper"):
        encode(circle, what="payload", limit=PLENTY)


def test_a_mapping_that_is_no_dict_is_kept_or_refused() -> None:
    with suppress(InvalidRequest):
        assert encode(MappingProxyType({"a": 1}), what="payload", limit=PLENTY) == '{"a":1}'


@given(st.dictionaries(TEXTS, JSON))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(body: dict[str, Json]) -> None:
    turned = dict(reversed(body.items()))
    assert fingerprint(body) == fingerprint(turned)


@given(JSON, JSON)
def test_different_bodies_have_different_fingerprints(one: Json, other: Json) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (fingerprint({"b": one}) == fingerprint({"b": other})) == same


def test_a_fingerprint_is_the_same_in_every_version() -> None:
    """It is stored: a new way to compute it would turn every repeated submission into a conflict."""
    known = "e12e44abb1e33c37"
    assert fingerprint({"type": "demo", "payload": {"b": [1, 2.5], "a": "é"}})[:16] == known


def nested(wrap: Wrap, depth: int) -> object:
    value: object = 1
    for _ in range(depth - 1):
        value = wrap(value)
    return value
