"""Payloads and results: what every database keeps is accepted, what one of them would lose is refused by its place."""

import json
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman import json_text
from herdsman.errors import InvalidRequest, TooLarge
from herdsman.json_text import (
    LARGEST_INTEGER,
    MAX_DEPTH,
    MOST_PARTS,
    ROOM_AROUND,
    Json,
    count_parts,
    decode,
    encode,
    fingerprint,
)

Wrap = Callable[[object], object]
PLENTY = 10**7
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NUMBERS = st.integers(-LARGEST_INTEGER, LARGEST_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
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


@given(st.recursive(st.none() | st.text() | st.floats() | st.binary() | st.sets(st.integers()), st.lists, max_leaves=5))
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
        (2**53, "payload contains the integer 9007199254740992: beyond 9007199254740991"),
        ({"seed": -(2**64)}, r"payload\.seed contains the integer -18446744073709551616"),
        pytest.param({"a": [10**5000]}, r"payload\.a\[0\] contains the integer 0x", id="huge-inside"),
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


@given(JSON)
def test_what_is_written_is_read_again(value: Json) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert repr(decode(text.encode(), what="the body")) == repr(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a": 1, "b": {"x": 1, "y": 2, "x": 1}}', "the body has the key 'x' twice in one object"),
        (b'{"a": 1, "\\u0061": 1}', "has the key 'a' twice"),
        (b"[9007199254740991, 9007199254740992]", "contains the integer 9007199254740992: beyond"),
        (b"[-9007199254740992]", "contains the integer -9007199254740992"),
        (b"9" * 100_000, r"contains the integer 99999999999999999999\.\.\. with 100,000 digits"),
        (b"[1e999]", "contains 1e999, which is larger than any number of 64 bits"),
        (b"[NaN]", "contains NaN: JSON has no such number"),
        (b'["\\"", -Infinity]', "contains -Infinity: JSON has no such number"),
        (b'["\xff"]', "the body is not UTF-8: byte 2 begins no character"),
        ("[1]".encode("utf-16"), "is not UTF-8"),
        (b'{"a":', "the body is not JSON: Expecting value, at line 1 column 6"),
        (b"", "is not JSON"),
        (b"[" * 41 + b"]" * 41, "nested deeper than 32 levels"),
        (b"[" * 100_000, "nested deeper than 32 levels"),
        (b'{"a":' * 100_000, "nested deeper than 32 levels"),
        (b'["' + b"\\" * 300_000 + b'"' + b"[" * 41, "nested deeper"),
        (b"[" + b"{}," * 200_000 + b"{}]", "made of too many values: 600,000 commas, colons and brackets"),
    ],
    ids=lambda given: str(given[:30]),
)
def test_text_that_others_would_read_otherwise_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        decode(text, what="the body")


def test_what_stands_in_a_text_is_no_structure() -> None:
    text = '["\\"' + "[{,:" * 200_000 + '", "NaN", "Infinity", "\\\\", "9007199254740992"]'
    assert count_parts(text.encode(), what="the body") == 6
    assert len(decode(text.encode(), what="the body")) == 5
    deep = b"[" * (MAX_DEPTH + ROOM_AROUND) + b"]" * (MAX_DEPTH + ROOM_AROUND)
    assert decode(deep, what="the body")


@given(JSON, st.integers(0, 40))
def test_parts_are_counted_alike_wherever_the_text_is_cut(value: Json, spaces: int) -> None:
    text = " " * spaces + json.dumps(value)
    whole = count_parts(text.encode(), what="it")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "_SLICE", 7)
        assert count_parts(text.encode(), what="it") == whole


MEBI = 1_048_576
AWKWARD = {
    "quotes": b'"' * MEBI,
    "a text without end": b'"' + b'\\"' * (MEBI // 2),
    "backslashes": b"\\" * MEBI,
    "escapes": b'"' + b"\\n" * (MEBI // 2) + b'"',
    "empty lists": b"[" + b"[]," * (MEBI // 3) + b"[]]",
    "empty texts": b"[" + b'"",' * (MEBI // 3) + b'""]',
    "opening brackets": b"[" * MEBI,
    "fields": b"{" + b",".join(b'"%x":null' % number for number in range(MEBI // 12)) + b"}",
    "digits": b"1" * MEBI,
    "decimals": b"0." + b"1" * MEBI,
    "spaces": b" " * MEBI,
    "minus": b"-" * MEBI,
}


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD)
def test_no_text_costs_more_than_its_length(text: bytes) -> None:
    """Each of these takes some milliseconds; one that is looked at again and again takes minutes."""
    began = time.thread_time()
    with suppress(InvalidRequest):
        decode(text, what="the body")
    assert time.thread_time() - began < 3


def test_a_long_key_is_not_written_out_for_each_value_under_it() -> None:
    payload = {"k" * 100_000: list(range(10_000))}
    tracemalloc.start()
    try:
        encode(payload, what="payload", limit=PLENTY)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_lists_that_hold_each_other_many_times_are_refused() -> None:
    value: list[object] = []
    for _ in range(MAX_DEPTH - 2):
        value = [value] * 10
    with pytest.raises(InvalidRequest, match=f"{MOST_PARTS:,} commas"):
        encode(value, what="payload", limit=PLENTY)


def nested(wrap: Wrap, depth: int) -> object:
    value: object = 1
    for _ in range(depth - 1):
        value = wrap(value)
    return value
