"""A network volume at Runpod is grown by as much as is asked for, and once however often that is."""

from collections.abc import Iterator

import pytest

from herdsman.errors import ProviderRejected
from herdsman.fleet.model import InstanceRef
from herdsman.ports import GrowsVolumes
from herdsman.providers.runpod.provider import RunpodProvider
from herdsman.testing.fakes.runpod import FakeRunpod, NetworkVolume
from tests.support.runpod import KEY, SPECIFICATION, Recording, a_provider, a_request, deviations

VOLUME = NetworkVolume("vol1aaaa", "models", 200, "EU-RO-1")


@pytest.fixture
def fake() -> Iterator[FakeRunpod]:
    with FakeRunpod(key=KEY, run_commands=False, volumes=(VOLUME,)) as fake:
        yield fake


@pytest.fixture
def provider(fake: FakeRunpod) -> Iterator[RunpodProvider]:
    recording = Recording()
    provider = a_provider(fake, transport=recording, volumes=("models",))
    yield provider
    provider.close()
    if SPECIFICATION.exists():
        assert [said for each in recording.exchanges for said in deviations(each)] == []


def size(fake: FakeRunpod) -> int:
    return fake._cloud.volumes[VOLUME.id].size_gb  # pyright: ignore[reportPrivateUsage]


def test_a_volume_is_grown_once_until_its_pods_see_it(fake: FakeRunpod, provider: RunpodProvider) -> None:
    assert isinstance(provider, GrowsVolumes)
    pod = provider.spawn(a_request())
    assert provider.grow_volume(pod.ref, seen_gb=200, by_gb=50) == "volume models has 250 GB now"
    said = provider.grow_volume(pod.ref, seen_gb=200, by_gb=50)
    assert said == "volume models has 250 GB already, its pods see 200"
    assert size(fake) == 250
    provider.grow_volume(pod.ref, seen_gb=250, by_gb=50)
    assert size(fake) == 300


def test_what_pods_see_of_other_disks_grows_nothing(fake: FakeRunpod, provider: RunpodProvider) -> None:
    pod = provider.spawn(a_request())
    assert "it is not judged by that" in provider.grow_volume(pod.ref, seen_gb=900_000, by_gb=50)
    assert size(fake) == 200


def test_there_is_a_largest_size_and_a_pod_may_have_no_volume(provider: RunpodProvider) -> None:
    pod = provider.spawn(a_request())
    assert provider.grow_volume(pod.ref, seen_gb=200, by_gb=5000) == "volume models has 4096 GB now"
    with pytest.raises(ProviderRejected, match="the most that Runpod gives"):
        provider.grow_volume(pod.ref, seen_gb=4096, by_gb=50)
    with pytest.raises(ProviderRejected, match="no network volume"):
        provider.grow_volume(InstanceRef("gone"), seen_gb=200, by_gb=50)
