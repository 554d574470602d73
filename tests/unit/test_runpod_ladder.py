"""Candidates are asked for one by one, and only a refusal leads to the next."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from herdsman.errors import (
    CapacityUnavailable,
    HerdsmanError,
    ProviderRejected,
    ProviderUnavailable,
    SpawnUnknown,
)
from herdsman.ids import PoolId
from herdsman.providers.runpod import RunpodProvider
from herdsman.providers.runpod.provider import MOST_TRIES
from herdsman.testing.clocks import ManualClock
from tests.support.runpod import A40, H100, L4, a_request, some_options

OUT = (400, "There are no longer any instances available")
VOLUMES = [
    {"id": "v1", "name": "models", "size": 10, "dataCenter": "EU-RO-1", "type": "STANDARD"},
    {"id": "v2", "name": "models-us", "size": 10, "dataCenter": "US-KS-2", "type": "STANDARD"},
    {"id": "v3", "name": "twin", "size": 10, "dataCenter": "US-KS-2", "type": "STANDARD"},
    {"id": "v4", "name": "twin", "size": 10, "dataCenter": "US-KS-2", "type": "STANDARD"},
]


class Shop:
    """A Runpod that has only what it is told to have, and remembers who asked for what."""

    def __init__(self, **refusals: tuple[int, str]) -> None:
        self.refusals = {name.replace("_", " "): answer for name, answer in refusals.items()}
        self.asked: list[dict[str, Any]] = []
        self.clock = ManualClock()

    def provider(self, **options: Any) -> RunpodProvider:
        wanted = some_options(**{"gpu_types": (L4, A40, H100), **options})
        return RunpodProvider(wanted, self.clock, transport=httpx.MockTransport(self.answer))

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"networkVolumes": VOLUMES})
        body = json.loads(request.content)
        self.asked.append(body)
        status, detail = self.refusals.get(body["gpu"]["id"], (201, ""))
        if status == 201:
            return httpx.Response(201, json={"id": "p", "name": body["name"], "status": "PROVISIONING"})
        return httpx.Response(status, json={"title": "", "status": status, "detail": detail})

    @property
    def gpus(self) -> list[str]:
        return [body["gpu"]["id"] for body in self.asked]


def test_the_first_choice_is_asked_for_first_and_alone() -> None:
    shop = Shop()
    shop.provider().spawn(a_request())
    assert shop.gpus == [L4]


def test_what_is_out_of_stock_leads_to_the_next_under_the_same_name() -> None:
    shop = Shop(NVIDIA_L4=OUT, NVIDIA_A40=OUT)
    request = a_request()
    shop.provider().spawn(request)
    assert shop.gpus == [L4, A40, H100]
    assert {body["name"] for body in shop.asked} == {request.name}


def test_what_was_out_of_stock_is_tried_last_for_a_while() -> None:
    shop = Shop(NVIDIA_L4=OUT)
    provider = shop.provider()
    provider.spawn(a_request())
    provider.spawn(a_request())
    assert shop.gpus == [L4, A40, A40]
    shop.clock.advance(timedelta(minutes=2))
    provider.spawn(a_request())
    assert shop.gpus[3:] == [L4, A40]


def test_when_everything_is_out_the_error_names_it() -> None:
    shop = Shop(NVIDIA_L4=OUT, NVIDIA_A40=OUT)
    provider = shop.provider(gpu_types=(L4, A40))
    for _ in range(2):
        with pytest.raises(CapacityUnavailable, match=r"none of: NVIDIA (L4|A40), NVIDIA (L4|A40); at last: "):
            provider.spawn(a_request())
    assert shop.gpus == [L4, A40, L4, A40]


ENDS: dict[str, tuple[tuple[int, str], type[HerdsmanError]]] = {
    "unknown": ((500, "boom"), SpawnUnknown),
    "passing": ((400, "Something went wrong"), SpawnUnknown),
    "wrong": ((422, "no"), ProviderRejected),
    "broke": ((402, "no"), ProviderRejected),
    "busy": ((429, "no"), ProviderUnavailable),
}


@pytest.mark.parametrize(("answer", "error"), ENDS.values(), ids=ENDS.keys())
def test_any_other_answer_ends_the_attempt_at_once(answer: tuple[int, str], error: type[HerdsmanError]) -> None:
    shop = Shop(NVIDIA_L4=OUT, NVIDIA_A40=answer)
    with pytest.raises(HerdsmanError) as raised:
        shop.provider().spawn(a_request())
    assert type(raised.value) is error
    assert shop.gpus == [L4, A40]


def test_a_gpu_that_the_account_may_not_have_is_passed_over() -> None:
    shop = Shop(NVIDIA_L4=(403, "not yours"))
    shop.provider().spawn(a_request())
    assert shop.gpus == [L4, A40]


def test_an_account_that_may_have_nothing_is_a_matter_for_a_person() -> None:
    shop = Shop(NVIDIA_L4=(403, "not yours"), NVIDIA_A40=(403, "not yours"))
    with pytest.raises(ProviderRejected, match="not yours"):
        shop.provider(gpu_types=(L4, A40)).spawn(a_request())


def test_memory_and_volumes_are_part_of_the_ladder() -> None:
    shop = Shop(NVIDIA_L4=OUT)
    with pytest.raises(CapacityUnavailable, match="NVIDIA L4 72 GB on models, NVIDIA L4 60 GB on models, "):
        shop.provider(gpu_types=(L4,), volumes=("models", "v2"), memory_tiers_gb=(72, 60)).spawn(a_request())
    asked = [
        (body["mounts"]["network"][0]["volumeId"], body["dataCenterIds"], body["gpu"]["minRamPerGpu"])
        for body in shop.asked
    ]
    assert asked == [
        ("v1", ["EU-RO-1"], 72),
        ("v1", ["EU-RO-1"], 60),
        ("v2", ["US-KS-2"], 72),
        ("v2", ["US-KS-2"], 60),
    ]


def test_one_spawn_asks_a_limited_number_of_times_and_the_next_goes_on() -> None:
    shop = Shop(NVIDIA_L4=OUT)
    provider = shop.provider(gpu_types=(L4,), memory_tiers_gb=tuple(range(1, 31)))
    for _ in range(2):
        with pytest.raises(CapacityUnavailable):
            provider.spawn(a_request())
    tiers = [body["gpu"]["minRamPerGpu"] for body in shop.asked]
    assert len(tiers) == 2 * MOST_TRIES
    assert set(tiers) == set(range(1, 31))


@pytest.mark.parametrize(
    ("volume", "said"),
    [("nowhere", "no network volume 'nowhere'.*models"), ("twin", "several network volumes.*v3, v4")],
)
def test_a_volume_that_is_not_clear_is_a_matter_for_a_person(volume: str, said: str) -> None:
    shop = Shop()
    with pytest.raises(ProviderRejected, match=said):
        shop.provider(volumes=(volume,)).spawn(a_request())
    assert shop.asked == []


def test_volumes_are_looked_up_once() -> None:
    looked: list[str] = []
    shop = Shop()

    def answer(request: httpx.Request) -> httpx.Response:
        looked.append(request.method)
        return shop.answer(request)

    options = some_options(volumes=("models",))
    provider = RunpodProvider(options, shop.clock, transport=httpx.MockTransport(answer))
    for _ in range(3):
        provider.spawn(a_request())
    assert looked == ["GET", "POST", "POST", "POST"]


def test_a_pool_may_ask_for_other_machines() -> None:
    shop = Shop()
    provider = RunpodProvider(
        some_options(gpu_types=(L4,)),
        shop.clock,
        pools={"video": some_options(gpu_types=(H100,))},
        transport=httpx.MockTransport(shop.answer),
    )
    provider.spawn(a_request())
    provider.spawn(replace(a_request(), pool=PoolId("video")))
    assert shop.gpus == [L4, H100]
