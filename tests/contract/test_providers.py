"""Every provider keeps the same promises, and ours at Runpod keeps to Runpod's specification while it does."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from herdsman.ports import Provider
from herdsman.providers.runpod import RunpodProvider
from herdsman.testing.provider_contract import ProviderContract
from herdsman.testing.runpod import FakeRunpod, RealClock
from tests.runpod import KEY, NAMING, SPECIFICATION, Recording, a_provider, deviations, some_options


class TestRunpod(ProviderContract):
    @pytest.fixture
    def fake(self) -> Iterator[FakeRunpod]:
        # Short pages, so that every listing takes several.
        with FakeRunpod(key=KEY, page_size=1) as fake:
            self.fake = fake
            yield fake

    @pytest.fixture
    def provider(self, fake: FakeRunpod) -> Iterator[Provider]:
        recording = Recording()
        yield a_provider(fake, transport=recording)
        recording.close()
        assert recording.exchanges
        if SPECIFICATION.exists():
            assert [each for exchange in recording.exchanges for each in deviations(exchange)] == []

    def new_name(self) -> str:
        return NAMING.name(uuid4().hex)

    def add_foreign(self) -> str:
        """Of another deployment, whose id begins as ours does."""
        name = f"{NAMING.prefix}--{NAMING.deployment}-b--{uuid4().hex}"
        self.fake.add_foreign(name)
        return name

    def unreachable(self) -> Provider:
        with FakeRunpod() as gone:
            url = gone.url
        return RunpodProvider(some_options(api_url=url), RealClock())

    def test_it_has_a_name(self, provider: Provider) -> None:
        assert provider.name == "runpod"
        provider.list_instances()
