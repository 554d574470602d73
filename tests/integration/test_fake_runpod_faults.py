"""Whatever Runpod does to us, the provider says what happened, and never starts a second machine for one name."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from pydantic import SecretStr

from herdsman.errors import (
    CapacityUnavailable,
    HerdsmanError,
    ProviderRejected,
    ProviderUnavailable,
    SpawnUnknown,
)
from herdsman.fleet.model import Instance, SpawnRequest
from herdsman.providers.runpod import RunpodProvider
from herdsman.testing.clocks import ManualClock
from herdsman.testing.fakes.runpod import FakeRunpod, Fault
from tests.support.runpod import (
    A40,
    KEY,
    L4,
    NAMING,
    SPECIFICATION,
    Recording,
    a_provider,
    a_request,
    deviations,
)

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fake(clock: ManualClock) -> Iterator[FakeRunpod]:
    """Nothing runs in its pods, and its time stands still unless it is moved."""
    with FakeRunpod(key=KEY, clock=clock, run_commands=False) as fake:
        yield fake


@pytest.fixture
def provider(fake: FakeRunpod) -> Iterator[RunpodProvider]:
    """What the fake answers on purpose is wrong; everything else must fit the specification."""
    recording = Recording()
    yield a_provider(fake, transport=recording)
    recording.close()
    struck = {asked.id for asked in fake.ledger.requests if asked.fault is not None}
    kept = [each for each in recording.exchanges if each.request_id not in struck or each.kind.endswith("+json")]
    if SPECIFICATION.exists():
        assert [each for exchange in kept for each in deviations(exchange)] == []


def names(provider: RunpodProvider) -> list[str]:
    return [instance.name for instance in provider.list_instances()]


AMBIGUOUS = [Fault.CREATED_THEN_500, Fault.CREATED_THEN_CUT, Fault.CREATED_THEN_GARBAGE]


@pytest.mark.parametrize("fault", AMBIGUOUS)
def test_an_ambiguous_create_is_unknown_and_found_later_by_its_name(
    fault: Fault, fake: FakeRunpod, provider: RunpodProvider
) -> None:
    fake.faults.turn_on(fault)
    request = a_request()
    with pytest.raises(SpawnUnknown):
        provider.spawn(request)
    assert names(provider) == [request.name]
    assert len(fake.ledger.creates(request.name)) == len(fake.ledger.named(request.name)) == 1


def test_a_slow_create_is_unknown(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.SLOW, lasting=2 * SECOND, only={"create"})
    provider = a_provider(fake, timeout=0.2 * SECOND)
    request = a_request()
    with pytest.raises(SpawnUnknown, match="ReadTimeout"):
        provider.spawn(request)
    assert names(provider) == [request.name]


@pytest.mark.parametrize("fault", [Fault.HTML_403, Fault.HTML_502, Fault.STORM_500])
def test_an_answer_from_somewhere_in_between_leaves_a_create_unknown(
    fault: Fault, fake: FakeRunpod, provider: RunpodProvider
) -> None:
    fake.faults.turn_on(fault)
    request = a_request()
    with pytest.raises(SpawnUnknown):
        provider.spawn(request)
    fake.faults.clear()
    assert names(provider) == []
    assert len(fake.ledger.creates(request.name)) == 1


def test_an_unknown_create_is_never_followed_by_another_candidate(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.NO_CAPACITY, only={L4})
    fake.faults.turn_on(Fault.CREATED_THEN_500)
    request = a_request()
    with pytest.raises(SpawnUnknown):
        a_provider(fake, gpu_types=(L4, A40, "NVIDIA L40S")).spawn(request)
    assert [asked.status for asked in fake.ledger.creates(request.name)] == [400, 500]
    assert len(fake.ledger.named(request.name)) == 1


def test_no_seed_makes_two_machines_of_one_name() -> None:
    """Thirty in a hundred creates are ambiguous and half the shelves are empty, from several threads at once."""
    with FakeRunpod(seed=7, key=KEY, clock=ManualClock(), run_commands=False) as fake:
        for fault in AMBIGUOUS:
            fake.faults.turn_on(fault, rate=0.1)
        fake.faults.turn_on(Fault.NO_CAPACITY, rate=0.5)
        fake.faults.turn_on(Fault.STORM_429, rate=0.05)
        provider = a_provider(fake, gpu_types=(L4, A40))
        requests = [a_request(NAMING.name(f"w{number}")) for number in range(150)]
        with ThreadPoolExecutor(8) as threads:
            outcomes = list(threads.map(partial(outcome, provider), requests))
        assert {SpawnUnknown, CapacityUnavailable, ProviderUnavailable} <= {type(each) for each in outcomes}
        for request, result in zip(requests, outcomes, strict=True):
            *refused, last = [asked.status for asked in fake.ledger.creates(request.name)]
            assert set(refused) <= {400}, "something was asked for after an answer that was not a refusal"
            there = len(fake.ledger.named(request.name))
            assert there == (1 if isinstance(result, Instance) or last in {500, 201, None} else 0)
        started = {life.name for life in fake.ledger.pods}
        assert set(names(provider)) == started


def outcome(provider: RunpodProvider, request: SpawnRequest) -> Instance | HerdsmanError:
    try:
        return provider.spawn(request)
    except HerdsmanError as error:
        return error


def test_twins_of_one_name_are_both_listed(fake: FakeRunpod, provider: RunpodProvider) -> None:
    fake.faults.turn_on(Fault.CREATED_TWICE)
    request = a_request()
    provider.spawn(request)
    assert names(provider) == [request.name] * 2


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.UNAUTHORIZED, ProviderRejected),
        (Fault.NO_BALANCE, ProviderRejected),
        (Fault.FORBIDDEN, ProviderRejected),
        (Fault.STORM_429, ProviderUnavailable),
        (Fault.NO_CAPACITY, CapacityUnavailable),
    ],
)
def test_a_refused_create_has_started_nothing(
    fault: Fault, error: type[HerdsmanError], fake: FakeRunpod, provider: RunpodProvider
) -> None:
    fake.faults.turn_on(fault)
    with pytest.raises(HerdsmanError) as raised:
        provider.spawn(a_request())
    assert isinstance(raised.value, error)
    assert not isinstance(raised.value, SpawnUnknown)
    assert fake.ledger.pods == ()


def test_a_wrong_key_is_a_matter_for_a_person(fake: FakeRunpod) -> None:
    with pytest.raises(ProviderRejected, match="401"):
        a_provider(fake, api_key=SecretStr("rpa_another_key")).list_instances()


def test_a_storm_says_how_long_to_wait(fake: FakeRunpod, provider: RunpodProvider) -> None:
    fake.faults.turn_on(Fault.STORM_429, lasting=37 * SECOND)
    with pytest.raises(ProviderUnavailable) as raised:
        provider.list_instances()
    assert raised.value.retry_after == 37 * SECOND


BLIND = [Fault.STORM_429, Fault.STORM_500, Fault.HTML_403, Fault.HTML_502, Fault.LISTING_CUT]


@pytest.mark.parametrize("fault", BLIND)
def test_a_listing_is_whole_or_an_error(fault: Fault, fake: FakeRunpod, provider: RunpodProvider) -> None:
    request = a_request()
    provider.spawn(request)
    fake.faults.turn_on(fault)
    with pytest.raises(ProviderUnavailable):
        provider.list_instances()
    fake.faults.clear()
    assert names(provider) == [request.name]


def test_a_listing_whose_second_page_fails_is_an_error() -> None:
    with FakeRunpod(key=KEY, run_commands=False, page_size=2) as fake:
        provider = a_provider(fake)
        for _ in range(5):
            provider.spawn(a_request())
        assert len(provider.list_instances()) == 5
        fake.faults.turn_on(Fault.STORM_500, rate=0.4, only={"list"})
        counts = {len(result) for _ in range(30) if (result := tried(provider)) is not None}
        assert counts <= {5}


def tried(provider: RunpodProvider) -> list[str] | None:
    try:
        return names(provider)
    except ProviderUnavailable:
        return None


def test_lies_of_a_listing_pass_through_for_the_caller_to_look_again(
    fake: FakeRunpod, provider: RunpodProvider
) -> None:
    """Nobody can tell them from the truth by one answer: absence needs its window (P2, P5)."""
    for _ in range(4):
        provider.spawn(a_request())
    fake.faults.turn_on(Fault.LISTING_EMPTY, times=1)
    assert names(provider) == []
    fake.faults.turn_on(Fault.LISTING_SHORT, times=1)
    assert len(names(provider)) == 2
    assert len(names(provider)) == 4


def test_a_new_pod_may_be_invisible_for_a_while(fake: FakeRunpod, provider: RunpodProvider, clock: ManualClock) -> None:
    fake.faults.turn_on(Fault.LISTING_LAG, lasting=30 * SECOND)
    instance = provider.spawn(a_request())
    assert names(provider) == []
    assert provider.find(instance.ref) is None
    clock.advance(31 * SECOND)
    assert names(provider) == [instance.name]
    assert provider.find(instance.ref) is not None


def test_a_living_pod_may_be_denied(fake: FakeRunpod, provider: RunpodProvider) -> None:
    instance = provider.spawn(a_request())
    fake.faults.turn_on(Fault.FALSE_404)
    assert provider.find(instance.ref) is None
    provider.terminate(instance.ref)
    assert fake.ledger.alive
    assert names(provider) == [instance.name]


def test_a_delete_may_do_nothing_and_is_repeated_until_it_does(fake: FakeRunpod, provider: RunpodProvider) -> None:
    instance = provider.spawn(a_request())
    fake.faults.turn_on(Fault.DELETE_IGNORED, times=2)
    for alive in (1, 1, 0):
        provider.terminate(instance.ref)
        assert len(names(provider)) == len(fake.ledger.alive) == alive


@pytest.mark.parametrize("fault", [Fault.STORM_500, Fault.HTML_502, Fault.UNAUTHORIZED])
def test_a_delete_that_failed_is_not_taken_for_one_that_was_not_needed(
    fault: Fault, fake: FakeRunpod, provider: RunpodProvider
) -> None:
    instance = provider.spawn(a_request())
    fake.faults.turn_on(fault)
    with pytest.raises((ProviderUnavailable, ProviderRejected)):
        provider.terminate(instance.ref)
    assert len(fake.ledger.alive) == 1


def test_the_pods_of_others_are_neither_seen_nor_touched(fake: FakeRunpod, provider: RunpodProvider) -> None:
    for name in ("mine", "gpu-1", "gpu--test-b--w", "gpu--tes--w", NAMING.name("w")[:-1]):
        fake.add_foreign(name)
    assert names(provider) == []
    assert fake.ledger.alive == ()


def test_faults_of_a_seed_are_the_same_in_every_run() -> None:
    def story(seed: int) -> list[str]:
        with FakeRunpod(seed=seed, key=KEY, clock=ManualClock(), run_commands=False) as fake:
            fake.faults.turn_on(Fault.CREATED_THEN_500, rate=0.5)
            provider = a_provider(fake)
            for number in range(20):
                outcome(provider, a_request(NAMING.name(f"w{number}")))
            return [f"{asked.name} {asked.status} {asked.fault}" for asked in fake.ledger.requests]

    assert story(1) == story(1) != story(2)


def test_a_slow_listing_is_an_error_in_time(fake: FakeRunpod) -> None:
    fake.faults.turn_on(Fault.SLOW, lasting=20 * SECOND)
    began = time.monotonic()
    with pytest.raises(ProviderUnavailable, match="ReadTimeout"):
        a_provider(fake, timeout=0.2 * SECOND).list_instances()
    assert time.monotonic() - began < 5
