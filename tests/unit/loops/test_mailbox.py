"""Messages are hidden while they are worked on, and come back when nobody answers for them."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as some

from herdsman.errors import StaleWrite
from herdsman.loops import InMemoryMailbox, LeaseExtender, Message
from tests.support.threads import at_once
from tests.unit.loops.doubles import HandClock, eventually


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def mailbox(clock: HandClock) -> InMemoryMailbox[str]:
    return InMemoryMailbox(clock=clock)


def test_a_message_is_hidden_until_its_time_is_over(mailbox: InMemoryMailbox[str], clock: HandClock) -> None:
    mailbox.send("a")
    (first,) = mailbox.receive(visibility_timeout=30, wait_time_seconds=0)
    clock.advance(29.9)
    assert mailbox.receive(wait_time_seconds=0) == []
    clock.advance(0.1)
    (second,) = mailbox.receive(visibility_timeout=30, wait_time_seconds=0)
    assert (second.id, second.body, second.delivery_count) == (first.id, "a", 2)
    assert second.receipt_handle != first.receipt_handle


@pytest.mark.parametrize("word", ["ack", "nack", "extend", "reject"])
def test_a_receipt_goes_stale(mailbox: InMemoryMailbox[str], clock: HandClock, word: str) -> None:
    mailbox.send("a")
    (old,) = mailbox.receive(visibility_timeout=30, wait_time_seconds=0)
    say = {
        "ack": old.ack,
        "nack": old.nack,
        "extend": lambda: old.extend(9),
        "reject": lambda: old.reject(OSError()),
    }
    clock.advance(30)
    with pytest.raises(StaleWrite, match="held too long"):
        say[word]()
    mailbox.receive(visibility_timeout=30, wait_time_seconds=0)
    with pytest.raises(StaleWrite, match="taken"):
        say[word]()
    assert len(mailbox) == 1


def test_an_acked_message_is_gone(mailbox: InMemoryMailbox[str], clock: HandClock) -> None:
    mailbox.send("a")
    (message,) = mailbox.receive(wait_time_seconds=0)
    message.ack()
    clock.advance(10_000)
    assert mailbox.receive(wait_time_seconds=0) == []
    with pytest.raises(StaleWrite):
        message.ack()


def test_a_nacked_message_comes_back_when_it_was_told_to(mailbox: InMemoryMailbox[str], clock: HandClock) -> None:
    mailbox.send("a")
    mailbox.receive(wait_time_seconds=0)[0].nack(visibility_timeout=5)
    assert mailbox.receive(wait_time_seconds=0) == []
    clock.advance(5)
    mailbox.receive(wait_time_seconds=0)[0].nack(visibility_timeout=0)
    assert mailbox.receive(wait_time_seconds=0)[0].delivery_count == 3


def test_an_extension_keeps_it_and_never_shortens(mailbox: InMemoryMailbox[str], clock: HandClock) -> None:
    mailbox.send("a")
    (message,) = mailbox.receive(visibility_timeout=30, wait_time_seconds=0)
    message.extend(10)
    clock.advance(29)
    message.extend(300)
    clock.advance(299)
    assert mailbox.receive(wait_time_seconds=0) == []
    clock.advance(1)
    assert len(mailbox.receive(wait_time_seconds=0)) == 1


def test_the_oldest_come_first_and_in_batches(clock: HandClock) -> None:
    mailbox = InMemoryMailbox[str](batch=2, clock=clock)
    for body in "abc":
        mailbox.send(body)
    assert [each.body for each in mailbox.receive(wait_time_seconds=0)] == ["a", "b"]
    assert [each.body for each in mailbox.receive(wait_time_seconds=0)] == ["c"]


def test_who_waits_is_woken_by_a_message_a_return_or_a_wake() -> None:
    mailbox, got = InMemoryMailbox[str](), list[int]()

    def wait() -> None:
        while not mailbox.closed:
            got.append(len(mailbox.receive(visibility_timeout=60, wait_time_seconds=60)))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    mailbox.send("a")
    eventually(lambda: got == [1])
    mailbox.wake()
    eventually(lambda: mailbox.wake() or got[-1] == 0)
    mailbox.close()
    eventually(lambda: mailbox.wake() or not thread.is_alive())


def test_a_redelivery_wakes_who_waits() -> None:
    mailbox = InMemoryMailbox[str]()
    mailbox.send("a")
    mailbox.receive(visibility_timeout=0.1, wait_time_seconds=0)
    assert mailbox.receive(wait_time_seconds=30)[0].delivery_count == 2


def test_many_receivers_share_what_there_is() -> None:
    mailbox = InMemoryMailbox[int]()
    for number in range(200):
        mailbox.send(number)

    def empty(_: int) -> list[int]:
        taken = list[int]()
        while found := mailbox.receive(wait_time_seconds=0):
            taken.append(found[0].body)
            found[0].ack()
        return taken

    taken = [number for each in at_once(6, empty) for number in each]
    assert sorted(taken) == list(range(200))


@given(
    some.lists(
        some.tuples(some.sampled_from(["send", "receive", "ack", "nack", "extend", "wait"]), some.integers(0, 9))
    )
)
def test_no_message_is_lost_and_none_is_held_twice(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order: held and due together are what was sent and not acked."""
    clock = HandClock()
    mailbox = InMemoryMailbox[int](clock=clock)
    held, alive = dict[str, tuple[Message[int], float]](), set[str]()
    for word, number in steps:
        held = {name: each for name, each in held.items() if each[1] > clock.now}
        name = sorted(held)[number % len(held)] if held else None
        match word:
            case "send":
                alive.add(mailbox.send(number))
            case "wait":
                clock.advance(number)
            case "receive":
                for message in mailbox.receive(visibility_timeout=number, wait_time_seconds=0):
                    assert message.id not in held
                    held[message.id] = message, clock.now + number
            case "ack" if name is not None:
                held.pop(name)[0].ack()
                alive.remove(name)
            case "nack" if name is not None:
                held.pop(name)[0].nack(visibility_timeout=number)
            case "extend" if name is not None:
                held[name][0].extend(number)
                held[name] = held[name][0], max(held[name][1], clock.now + number)
            case _:
                continue
    clock.advance(100)
    found = [message.id for _ in steps for message in mailbox.receive(wait_time_seconds=0)]
    assert sorted(found) == sorted(alive)


def test_a_beat_extends_at_most_once_per_interval(mailbox: InMemoryMailbox[str], clock: HandClock) -> None:
    mailbox.send("a")
    (message,) = mailbox.receive(visibility_timeout=100, wait_time_seconds=0)
    extender = LeaseExtender(message, clock=clock)
    clock.advance(59)
    extender.beat()
    clock.advance(41)
    with pytest.raises(StaleWrite):
        extender.beat()


def test_work_that_beats_keeps_its_message_and_work_that_is_stuck_loses_it(
    mailbox: InMemoryMailbox[str], clock: HandClock
) -> None:
    mailbox.send("a")
    (message,) = mailbox.receive(visibility_timeout=300, wait_time_seconds=0)
    extender = LeaseExtender(message, clock=clock)
    for _ in range(30):
        clock.advance(60)
        extender.beat()
        assert mailbox.receive(wait_time_seconds=0) == []
    clock.advance(300)
    assert mailbox.receive(wait_time_seconds=0)[0].id == message.id
