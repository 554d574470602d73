"""Wrong tokens are counted by address, forgiven with time, and the count has a limit."""

from datetime import timedelta

import pytest

from herdsman.errors import TooMany
from herdsman.server.limits import LoginThrottle
from herdsman.testing.clocks import ManualClock


def tries(failures: LoginThrottle, address: str) -> int:
    """How many there are until the address is turned away."""
    for count in range(1000):
        try:
            failures.check(address)
        except TooMany:
            return count
        failures.note(address)
    raise AssertionError("nobody was turned away")


def test_tries_come_back_one_by_one() -> None:
    clock = ManualClock()
    failures = LoginThrottle(clock, burst=5, every=timedelta(seconds=3))
    assert tries(failures, "192.0.2.1") == 5
    clock.advance(timedelta(seconds=6))
    assert tries(failures, "192.0.2.1") == 2
    clock.advance(timedelta(hours=1))
    assert tries(failures, "192.0.2.1") == 5


def test_the_caller_is_told_when_to_come_back() -> None:
    clock = ManualClock()
    failures = LoginThrottle(clock, burst=2, every=timedelta(seconds=3))
    tries(failures, "a")
    with pytest.raises(TooMany) as told:
        failures.check("a")
    assert told.value.retry_after == timedelta(seconds=3)
    clock.advance(timedelta(seconds=3))
    failures.check("a")


def test_one_address_does_not_spend_the_tries_of_another() -> None:
    failures = LoginThrottle(ManualClock(), burst=3)
    assert tries(failures, "192.0.2.1") == tries(failures, "192.0.2.2") == 3


def test_a_whole_ipv6_network_is_one_address() -> None:
    failures = LoginThrottle(ManualClock(), burst=3)
    assert tries(failures, "2001:db8::1") == 3
    assert tries(failures, "2001:db8::2") == 0
    assert tries(failures, "2001:db8:0:1::1") == 3
    assert tries(failures, "192.0.2.1") == 3
    assert tries(failures, "::ffff:192.0.2.1") == 0


def test_the_number_of_addresses_is_bounded() -> None:
    """The one that failed longest ago is forgotten first."""
    failures = LoginThrottle(ManualClock(), burst=3, most_addresses=10)
    assert tries(failures, "192.0.2.1") == 3
    for number in range(10):
        failures.note(f"198.51.100.{number}")
    assert tries(failures, "192.0.2.1") == 3
