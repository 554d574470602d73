"""A submission that cannot be kept is refused with the field, the value and the rule."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidRequest, TooLarge
from herdsman.ids import JobId, PoolId, check_name
from herdsman.jobs.model import JobPolicy, NewJob
from herdsman.jobs.rules import body_hash, check

POLICY = JobPolicy()
GOOD = NewJob(type="demo")
YEAR = timedelta(days=365)


def test_a_plain_job_is_in_order() -> None:
    assert check(GOOD, POLICY) == "{}"


@pytest.mark.parametrize(
    "good",
    [
        {"type": "a" * 64},
        {"type": "comfy.render:v2"},
        {"job_id": "0"},
        {"job_id": "a" * 128},
        {"idempotency_key": "a@b+c:d.e_f-g" + "x" * 242},
        {"agent": "a" * 255},
        {"tags": tuple(f"t{number}" for number in range(20))},
        {"tags": ("same", "same")},
        {"priority": -100},
        {"priority": 100},
        {"max_attempts": 1},
        {"max_attempts": 100},
        {"delay": timedelta(microseconds=1)},
        {"delay": YEAR},
        {"timeout": timedelta(days=30)},
        {"run_at": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-7)))},
        {"retry_base": timedelta(hours=1), "retry_cap": timedelta(seconds=1)},
    ],
)
def test_what_is_just_within_the_rules_is_accepted(good: dict[str, Any]) -> None:
    check(replace(GOOD, **good), POLICY)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"type": ""}, "type is ''"),
        ({"type": "a" * 65}, "type has 65 characters, the limit is 64"),
        ({"type": "two words"}, "type is 'two words': it must begin with a letter or digit"),
        ({"type": "-x"}, "type is '-x'"),
        ({"type": "é"}, "type is 'é'"),
        ({"type": "a\n"}, r"type is 'a\\n'"),
        ({"job_id": "a/b"}, "job_id is 'a/b'"),
        ({"job_id": ""}, "job_id is ''"),
        ({"job_id": "a" * 129}, "job_id has 129 characters"),
        ({"idempotency_key": ""}, "idempotency_key is ''"),
        ({"idempotency_key": "a" * 256}, "idempotency_key has 256 characters"),
        ({"agent": "a\0"}, "agent is"),
        ({"pool": "../x"}, "pool is"),
        ({"pool": "a" * 129}, "pool has 129 characters"),
        ({"tags": ("ok", "not ok")}, "tag is 'not ok'"),
        ({"tags": tuple(f"t{number}" for number in range(21))}, "21 tags were given, the limit is 20"),
        ({"priority": 101}, "priority is 101: it must be a whole number from -100 to 100"),
        ({"priority": -101}, "priority is -101"),
        ({"priority": 1.0}, "priority is 1.0"),
        ({"priority": True}, "priority is True"),
        ({"max_attempts": 0}, "max_attempts is 0: it must be a whole number from 1 to 100"),
        ({"max_attempts": 101}, "max_attempts is 101"),
        ({"delay": timedelta(0)}, "delay is 0:00:00: it must be more than 0"),
        ({"delay": -timedelta(seconds=1)}, "delay is -1 day"),
        (
            {"delay": YEAR + timedelta(seconds=1)},
            "delay is 365 days, 0:00:01: it must be more than 0 and at most 365 days",
        ),
        ({"timeout": timedelta(0)}, "timeout is"),
        ({"timeout": timedelta(days=31)}, "timeout is 31 days"),
        ({"retry_base": timedelta(0)}, "retry_base is"),
        ({"retry_cap": timedelta(0)}, "retry_cap is"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at is 2026-01-01T00:00:00: it must say its time zone"),  # noqa: DTZ001
        (
            {"run_at": datetime(2026, 1, 1, tzinfo=UTC), "delay": YEAR},
            "run_at and delay were both given: use one",
        ),
    ],
)
def test_what_is_just_outside_the_rules_is_refused(bad: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check(replace(GOOD, **bad), POLICY)


def test_a_payload_has_a_size() -> None:
    small = replace(POLICY, max_payload_bytes=10)
    check(replace(GOOD, payload="12345678"), small)
    with pytest.raises(TooLarge, match="payload is 11 bytes, the limit is 10: store the data elsewhere"):
        check(replace(GOOD, payload="123456789"), small)


@given(st.text(max_size=40))
def test_a_name_needs_no_escaping_anywhere(name: str) -> None:
    try:
        check_name("name", name, 30)
    except InvalidRequest as refused:
        assert "name" in str(refused)
        return
    assert name.isascii()
    assert 1 <= len(name) <= 30
    assert not set(name) & set(" /\\?#%&'\"<>`;$|*{}[]()\n\r\t\0")
    assert name[0].isalnum()


def test_the_names_of_a_submission_are_no_part_of_its_body() -> None:
    named = replace(GOOD, job_id=JobId("j"), idempotency_key="k")
    assert body_hash(named) == body_hash(GOOD)


@pytest.mark.parametrize(
    "other",
    [
        {"type": "other"},
        {"payload": {"a": 1}},
        {"agent": "other"},
        {"pool": PoolId("other")},
        {"priority": 1},
        {"tags": ("a",)},
        {"run_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"delay": YEAR},
        {"timeout": YEAR},
        {"max_attempts": 5},
        {"retry_base": YEAR},
        {"retry_cap": YEAR},
    ],
    ids=lambda other: next(iter(other)),
)
def test_j2_everything_that_was_asked_for_is_part_of_the_body(other: dict[str, Any]) -> None:
    assert body_hash(replace(GOOD, **other)) != body_hash(GOOD)


def test_j2_one_instant_in_two_zones_is_one_body() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    tokyo = noon.astimezone(timezone(timedelta(hours=9)))
    assert body_hash(replace(GOOD, run_at=noon)) == body_hash(replace(GOOD, run_at=tokyo))
