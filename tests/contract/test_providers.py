"""Every provider keeps the same promises, and ours at Runpod keeps to Runpod's specification while it does."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from herdsman.ports import Provider, SystemClock
from herdsman.providers.runpod import RunpodProvider
from herdsman.testing.fakes.runpod import FakeRunpod, Fault
from herdsman.testing.provider_contract import ProviderContract
from tests.support.runpod import KEY, NAMING, SPECIFICATION, Recording, a_provider, deviations, some_options


class TestRunpod(ProviderContract):
    fake: FakeRunpod

    @pytest.fixture
    def provider(self) -> Iterator[Provider]:
        recording = Recording()
        # Short pages, so that every listing takes several.
        with FakeRunpod(key=KEY, page_size=1) as self.fake:
            yield a_provider(self.fake, transport=recording)
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

    def lose_next_answer(self) -> bool:
        self.fake.faults.turn_on(Fault.CREATED_THEN_CUT, times=1)
        return True

    def unreachable(self) -> Provider:
        with FakeRunpod() as gone:
            url = gone.url
        return RunpodProvider(some_options(api_url=url), SystemClock())

    def test_it_has_a_name(self, provider: Provider) -> None:
        assert provider.name == "runpod"
        provider.list_instances()
