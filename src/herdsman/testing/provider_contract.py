"""The promises of `herdsman.ports.Provider` as tests: a plugin brings the provider, the suite the questions.

    class TestMyCloud(ProviderContract):
        @pytest.fixture
        def provider(self) -> Provider:
            return MyCloud(...)

Everything is told in plain assertions, so that the suite needs no test framework of its own.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

from herdsman.errors import ProviderUnavailable, SpawnUnknown
from herdsman.fleet.model import Instance, InstanceRef, SpawnRequest
from herdsman.ids import DEFAULT_POOL, WorkerId
from herdsman.ports import Provider

LOOK_AGAIN_S = 0.02


class ProviderContract:
    """Subclass it with a fixture `provider`, and with those of the hooks that fit."""

    patience: timedelta = timedelta(seconds=10)
    """How long an instance may take to show up, or to be gone."""

    def new_name(self) -> str:
        """A name that was never used, and that this deployment would know again."""
        return f"contract-{uuid4().hex}"

    def request(self, name: str) -> SpawnRequest:
        return SpawnRequest(
            name=name, worker_id=WorkerId(name), pool=DEFAULT_POOL, environment={"HERDSMAN_CONTRACT": "yes"}
        )

    def unknown_ref(self) -> InstanceRef:
        """Well formed, but the ref of nothing."""
        return InstanceRef("nosuchinstance")

    def add_foreign(self) -> str | None:
        """The name of a new instance of somebody else; None where there cannot be one."""
        return None

    def lose_next_answer(self) -> bool:
        """Let the next spawn succeed and its answer be lost; False where that cannot happen."""
        return False

    def unreachable(self) -> Provider | None:
        """The same provider with nobody at the other end; None where there is no other end."""
        return None

    def test_it_has_a_name(self, provider: Provider) -> None:
        assert provider.name, "the name is empty"

    def test_an_instance_has_exactly_the_name_that_was_asked_for(self, provider: Provider) -> None:
        with self._spawned(provider) as (name, instance):
            assert instance.name == name, f"{instance.name} is not {name}"
            assert instance.ref, "the ref is empty"

    def test_an_instance_is_found_by_its_ref(self, provider: Provider) -> None:
        with self._spawned(provider) as (name, instance):
            self._eventually(lambda: provider.find(instance.ref) is not None, f"{name} is not found")
            found = provider.find(instance.ref)
            assert found is not None
            assert (found.ref, found.name) == (instance.ref, name), f"{found} is another one"

    def test_every_instance_is_listed_once(self, provider: Provider) -> None:
        with self._spawned(provider) as (one, _), self._spawned(provider) as (two, _):
            self._eventually(lambda: {one, two} <= set(_names(provider)), "an instance is not listed")
            names = _names(provider)
            assert names.count(one) == names.count(two) == 1, f"listed twice: {names}"

    def test_a_listing_names_each_instance_in_full(self, provider: Provider) -> None:
        """One name may begin with another."""
        short = self.new_name()
        with self._spawned(provider, short) as (_, one), self._spawned(provider, f"{short}-2") as (_, two):
            self._eventually(
                lambda: {instance.ref for instance in provider.list_instances()} >= {one.ref, two.ref},
                "an instance is not listed",
            )
            listed = {each.name: each.ref for each in provider.list_instances()}
            assert (listed[short], listed[f"{short}-2"]) == (one.ref, two.ref), f"mixed up: {listed}"

    def test_an_ended_instance_disappears(self, provider: Provider) -> None:
        with self._spawned(provider) as (name, instance):
            provider.terminate(instance.ref)
            self._eventually(lambda: name not in _names(provider), f"{name} is still listed")
            self._eventually(lambda: provider.find(instance.ref) is None, f"{name} is still found")

    def test_ending_one_leaves_the_others(self, provider: Provider) -> None:
        with self._spawned(provider) as (ended, instance), self._spawned(provider) as (kept, _):
            provider.terminate(instance.ref)
            self._eventually(lambda: ended not in _names(provider), f"{ended} is still listed")
            assert kept in _names(provider), f"{kept} is gone too"

    def test_an_instance_may_be_ended_twice(self, provider: Provider) -> None:
        with self._spawned(provider) as (_, instance):
            provider.terminate(instance.ref)
            provider.terminate(instance.ref)

    def test_ending_what_is_not_there_succeeds(self, provider: Provider) -> None:
        provider.terminate(self.unknown_ref())

    def test_what_is_not_there_is_not_found(self, provider: Provider) -> None:
        assert provider.find(self.unknown_ref()) is None, "something was found"
        assert not provider.logs(self.unknown_ref(), 10), "something has a log"

    def test_a_log_is_no_longer_than_was_asked_for(self, provider: Provider) -> None:
        with self._spawned(provider) as (_, instance):
            lines = provider.logs(instance.ref, 1)
            assert len(lines) <= 1, f"{len(lines)} lines"
            assert not provider.logs(instance.ref, 0), "lines that nobody asked for"

    def test_a_spawn_whose_answer_is_lost_is_unknown_and_found_by_its_name(self, provider: Provider) -> None:
        if not self.lose_next_answer():
            return
        name = self.new_name()
        failure = _failure(lambda: provider.spawn(self.request(name)))
        assert failure is SpawnUnknown, f"spawn raised {failure}"
        self._eventually(lambda: name in _names(provider), f"{name} is not listed")
        for instance in provider.list_instances():
            provider.terminate(instance.ref)

    def test_the_instances_of_others_are_invisible(self, provider: Provider) -> None:
        foreign = self.add_foreign()
        with self._spawned(provider) as (ours, _):
            self._eventually(lambda: ours in _names(provider), f"{ours} is not listed")
            assert foreign not in _names(provider), f"{foreign} belongs to somebody else"

    def test_nobody_at_the_other_end_is_an_error_and_never_an_empty_answer(self) -> None:
        provider = self.unreachable()
        if provider is None:
            return
        ref = self.unknown_ref()
        calls: dict[str, Callable[[], object]] = {
            "spawn": lambda: provider.spawn(self.request(self.new_name())),
            "find": lambda: provider.find(ref),
            "terminate": lambda: provider.terminate(ref),
            "list_instances": provider.list_instances,
            "logs": lambda: provider.logs(ref, 10),
        }
        for verb, call in calls.items():
            assert _failure(call) is ProviderUnavailable, f"{verb} raised {_failure(call)}"

    @contextmanager
    def _spawned(self, provider: Provider, name: str | None = None) -> Generator[tuple[str, Instance]]:
        chosen = name or self.new_name()
        instance = provider.spawn(self.request(chosen))
        try:
            yield chosen, instance
        finally:
            provider.terminate(instance.ref)

    def _eventually(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + self.patience.total_seconds()
        while not holds():
            assert time.monotonic() < deadline, f"{otherwise} after {self.patience}"
            time.sleep(LOOK_AGAIN_S)


def _names(provider: Provider) -> list[str]:
    return [instance.name for instance in provider.list_instances()]


def _failure(call: Callable[[], object]) -> type[Exception] | None:
    """Which error a call raises. A spawn that never left us is not an unknown one."""
    try:
        call()
    except SpawnUnknown:
        return SpawnUnknown
    except ProviderUnavailable:
        return ProviderUnavailable
    return None
