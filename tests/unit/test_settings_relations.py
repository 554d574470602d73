"""Settings that do not fit together: impossible ones are refused, doubtful ones warned about."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herdsman.errors import InvalidSettings
from herdsman.settings import RELATIONS, Origin, Relation, Settings, advice, load_settings
from herdsman.settings.model import CATALOGUE

NOWHERE = Path("/nonexistent")
NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")

# For each relation the smallest change of the defaults that breaks it.
REFUSED: dict[str, dict[str, str]] = {
    "claims survive lost heartbeats": {"HEARTBEAT_INTERVAL_SEC": "8"},
    "a worker stops before its job is given away": {"SELF_FENCE_SEC": "30"},
    "a worker does not stop between heartbeats": {"SELF_FENCE_SEC": "5"},
    "retries grow towards their cap": {"RETRY_BACKOFF_BASE_SEC": "301"},
    "the margin fits into a lease": {"LEASE_MARGIN_SEC": "60"},
    "a lease outlives a heartbeat": {"LEASE_MARGIN_SEC": "55"},
    "the usual lease may be asked for": {"GPU_ORCHESTRATOR_LEASE_TTL": "59"},
    "a heartbeat is not overdue before it is due": {"GPU_IDLE_TIMEOUT_SEC": "5"},
    "the failsafe comes last": {"FAILSAFE_STALE_THRESHOLD_SEC": "299"},
    "the floor is under the ceiling": {"MIN_ACTIVE_GPUS": "11"},
    "the pools' floor is under their ceiling": {"GPU_POOL_MIN_WARM": "9"},
    "a slow create is not taken for a failed one": {"ABSENCE_WINDOW_SEC": "30"},
    "leadership survives lost renewals": {"LEADER_RENEW_SEC": "2.6"},
    "the watchdog spares a loop at work": {"MAX_PROCESSING_SEC": "690"},
    "the watchdog looks often enough": {"WATCHDOG_INTERVAL_SEC": "240"},
    "not ready comes before killed": {"READINESS_THRESHOLD_SEC": "721"},
    "a stalled loop is killed before its message returns": {"VISIBILITY_TIMEOUT_SEC": "780"},
}
ADVISED: dict[str, dict[str, str]] = {
    "stream entries outlive a heartbeat": {"ORCH_CLAIM_IDLE_MS": "1000"},
    "stuck is longer than the work": {"MAX_PROCESSING_SEC": "600"},
    "spare workers go sooner": {"GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC": "301"},
    "starting ends before booting does": {"SPAWNING_TIMEOUT_SEC": "601"},
    "followers look more often than a term lasts": {"GPU_ORCHESTRATOR_LEADER_LOOP_S": "11"},
    "an outage is known before workers stop": {"LEADER_TTL_SEC": "20"},
    "a message stays away for a stall after full work": {"VISIBILITY_TIMEOUT_SEC": "1320"},
}


def named(relation: str) -> Relation:
    return next(each for each in RELATIONS if each.name == relation)


def test_each_relation_is_broken_below() -> None:
    assert {each.name for each in RELATIONS if each.required} == set(REFUSED)
    assert {each.name for each in RELATIONS if not each.required} == set(ADVISED)


@pytest.mark.parametrize(("relation", "env"), REFUSED.items())
def test_what_cannot_work_is_refused_with_both_names_and_both_values(relation: str, env: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings(env, NOWHERE)
    sentence = next(line for line in str(refused.value).splitlines() if line.endswith(named(relation).because))
    for name in NAME.findall(named(relation).text):
        assert re.search(rf"{name} \([\d.]+, (environment|default)\)", sentence), name


@pytest.mark.parametrize(("relation", "env"), ADVISED.items())
def test_what_is_doubtful_starts_with_a_warning(relation: str, env: dict[str, str]) -> None:
    (sentence,) = advice(load_settings(env, NOWHERE))
    assert sentence.endswith(named(relation).because)
    assert " should be " in sentence


def test_a_refusal_reads_as_one_sentence() -> None:
    with pytest.raises(InvalidSettings) as refused:
        load_settings({"MIN_ACTIVE_GPUS": "12"}, NOWHERE)
    assert str(refused.value) == (
        "MIN_ACTIVE_GPUS (12, environment) must be <= MAX_ACTIVE_GPUS (10, default): "
        "otherwise no size of the fleet is right."
    )


def test_no_workers_at_all_is_a_switch_that_needs_no_other_change() -> None:
    """MAX_ACTIVE_GPUS=0 stops all spawning, whatever the minimum is."""
    assert load_settings({"MAX_ACTIVE_GPUS": "0"}, NOWHERE).scaling.min_active_gpus == 2


@pytest.mark.parametrize(
    ("work", "threshold", "interval", "visibility"),
    [(120, 180, 30, 300), (600, 720, 60, 1800), (1800, 2100, 120, 3600)],
)
def test_the_documented_watchdog_presets_are_accepted(
    work: int, threshold: int, interval: int, visibility: int
) -> None:
    """For work of two, ten and thirty minutes."""
    env = {
        "MAX_PROCESSING_SEC": str(work),
        "WATCHDOG_THRESHOLD_SEC": str(threshold),
        "WATCHDOG_INTERVAL_SEC": str(interval),
        "VISIBILITY_TIMEOUT_SEC": str(visibility),
    }
    assert load_settings(env, NOWHERE).watchdog.visibility_timeout_sec == visibility


def test_the_parameters_may_all_be_divided_for_a_fast_clock() -> None:
    durations = [each for each in CATALOGUE.values() if each.name.endswith(("_SEC", "_S", "_MS", "_TTL"))]
    fast = {each.name: str(each.kind.shown(_fifteenth(each.default(Settings())))) for each in durations}
    assert load_settings(fast, NOWHERE).jobs.claim_ttl_sec == 2


def _fifteenth(value: object) -> float:
    assert isinstance(value, int | float)
    return value / 15


NUMBERS = st.one_of(st.integers(1, 8), st.integers(1, 4000), st.floats(1, 4000))
NAMES = sorted({name for each in RELATIONS for name in NAME.findall(each.text)})


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, NUMBERS)))
def test_the_text_of_a_relation_says_what_is_checked(values: dict[str, float]) -> None:
    groups: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        setting = CATALOGUE[name]
        whole = isinstance(setting.default(Settings()), int) and setting.field.annotation is int
        groups.setdefault(setting.group, {})[setting.key] = round(value) if whole else value
    origins = dict.fromkeys(values, Origin.ENVIRONMENT)
    settings = Settings.model_validate({**groups, "origins": origins})
    for each in RELATIONS:
        assert eval(each.numbers(settings)) == each.check(settings), each.text
