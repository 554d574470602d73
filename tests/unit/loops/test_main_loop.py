"""A loop works message by message, shows that it lives, and loses nothing."""

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from herdsman.errors import StaleWrite
from herdsman.loops import (
    AdaptiveThreshold,
    DeadLetter,
    DeadLetterPolicy,
    InMemoryMailbox,
    LoopGroup,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    replay,
)
from tests.unit.loops.doubles import HandClock, Requests, Works, eventually

Beat = Callable[[], None]
Graves = InMemoryMailbox[DeadLetter[MainLoopRequest[Any]]]


def filled(*bodies: object, batch: int = 1, clock: HandClock | None = None) -> Requests:
    mailbox = Requests(batch=batch, clock=clock or HandClock())
    for body in bodies:
        mailbox.send(MainLoopRequest(request=body))
    return mailbox


def same(request: object, _beat: Beat) -> object:
    return request


def test_mainloop_heartbeats_during_processing() -> None:
    clock, ages = HandClock(), list[float]()

    def slow(_request: object, _beat: Beat) -> None:
        ages.append(loop.heartbeat.elapsed())
        clock.advance(100)

    loop = Works(filled("a", "b", batch=2, clock=clock), slow, clock=clock)
    clock.advance(50)
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert ages == [0.0, 0.0]
    assert loop.heartbeat.elapsed() == 0


def test_an_idle_loop_beats_after_each_receive() -> None:
    clock = HandClock()
    loop = Works(filled(clock=clock), same, clock=clock)
    clock.advance(50)
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert loop.heartbeat.elapsed() == 0


def test_long_work_beats_for_itself_and_keeps_its_message() -> None:
    clock = HandClock()
    mailbox = filled("a", clock=clock)

    def long(_request: object, beat: Beat) -> None:
        for _ in range(60):
            clock.advance(60)
            beat()
            assert loop.heartbeat.elapsed() == 0

    loop = Works(mailbox, long, clock=clock)
    loop.run(max_iterations=1, visibility_timeout=300, wait_time_seconds=0)
    assert len(mailbox) == 0


def test_work_that_lost_its_message_is_told_by_its_beat(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    mailbox, went_on = filled("a", clock=clock), list[str]()

    def stuck(_request: object, beat: Beat) -> None:
        clock.advance(301)
        beat()
        went_on.append("never")

    Works(mailbox, stuck, clock=clock).run(max_iterations=1, visibility_timeout=300, wait_time_seconds=0)
    assert went_on == []
    assert "no longer ours" in caplog.text
    assert mailbox.receive(wait_time_seconds=0)[0].delivery_count == 2


def test_a_stale_write_of_the_work_itself_is_a_failure_like_others() -> None:
    def stale(_request: object, _beat: Beat) -> None:
        raise StaleWrite("something else")

    mailbox = filled("a")
    Works(mailbox, stale).run(max_iterations=1, wait_time_seconds=0)
    assert mailbox.receive(wait_time_seconds=0)[0].delivery_count == 2


def test_on_shutdown_every_message_that_was_not_begun_goes_back_at_once() -> None:
    mailbox = filled("a", "b", "c", batch=3)
    done = list[object]()

    def stop_then(request: object, _beat: Beat) -> None:
        done.append(request)
        loop.stop()

    loop = Works(mailbox, stop_then)
    loop.run(wait_time_seconds=0)
    assert done == ["a"]
    assert [each.body.request for each in mailbox.receive(wait_time_seconds=0)] == ["b", "c"]
    assert not loop.running


def test_one_bad_message_is_tried_again_later_and_does_not_end_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, done = HandClock(), list[object]()

    def pick(request: object, _beat: Beat) -> None:
        if request == "bad":
            raise ValueError("bad one")
        done.append(request)

    mailbox = filled("bad", "good", clock=clock)
    with caplog.at_level(logging.ERROR):
        Works(mailbox, pick, clock=clock).run(max_iterations=2, wait_time_seconds=0)
    assert done == ["good"]
    assert "ValueError: bad one" in caplog.text
    assert mailbox.receive(wait_time_seconds=0) == []
    clock.advance(1)
    assert mailbox.receive(wait_time_seconds=0)[0].delivery_count == 2


def test_a_message_is_given_up_after_five_deliveries_and_can_be_replayed() -> None:
    clock, graves = HandClock(), Graves()
    mailbox = Requests(clock=clock)
    replies = InMemoryMailbox[MainLoopResult[object]]()
    sent = MainLoopRequest[Any](request="bad", reply_to=replies, trace_id="t1")
    mailbox.send(sent)

    def fail(_request: object, _beat: Beat) -> None:
        raise ValueError("bad one")

    loop = Works(mailbox, fail, clock=clock, dead_letters=graves, name="images")
    for delivery in range(1, 6):
        assert len(graves) == 0, delivery
        loop.run(max_iterations=1, wait_time_seconds=0)
        clock.advance(3600)
    assert len(mailbox) == 0
    (grave,) = graves.receive(wait_time_seconds=0)
    letter = grave.body
    assert (letter.source, letter.deliveries, letter.error_type, letter.error) == (
        "images",
        5,
        "ValueError",
        "bad one",
    )
    assert letter.body is sent
    assert letter.first_sent_at is not None
    assert letter.first_sent_at <= letter.died_at
    (reply,) = replies.receive(wait_time_seconds=0)
    assert (reply.body.error, reply.body.trace_id) == ("ValueError: bad one", "t1")
    grave.nack()
    assert len(replay(graves, mailbox)) == 1
    assert (len(graves), mailbox.receive(wait_time_seconds=0)[0].body) == (0, sent)


def test_a_message_that_takes_its_worker_down_each_time_is_not_begun_a_sixth_time() -> None:
    clock, begun, graves = HandClock(), list[object](), Graves()
    mailbox = filled("poison", clock=clock)
    for _ in range(5):
        mailbox.receive(visibility_timeout=1, wait_time_seconds=0)
        clock.advance(1)
    loop = Works(mailbox, lambda request, _: begun.append(request), clock=clock, dead_letters=graves)
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert (begun, len(mailbox)) == ([], 0)
    assert graves.receive(wait_time_seconds=0)[0].body.error_type == "WornOut"


def test_the_policy_knows_errors_that_never_count_and_those_that_end_it_at_once() -> None:
    policy = DeadLetterPolicy(at_once=(ValueError,), never=(OSError,))
    assert policy.gives_up(ValueError(), 1)
    assert not policy.gives_up(TypeError(), 4)
    assert policy.gives_up(TypeError(), 5)
    assert not policy.gives_up(ConnectionError(), 500)
    assert not policy.worn_out(500)
    assert [policy.delay(n) for n in (1, 2, 3, 500)] == [1, 2, 4, 300]


def test_an_answer_goes_to_whoever_asked_or_to_the_loops_own_mailbox() -> None:
    asked, own = InMemoryMailbox[MainLoopResult[object]](), InMemoryMailbox[MainLoopResult[object]]()
    mailbox = filled("a")
    mailbox.send(MainLoopRequest(request="b", reply_to=asked))
    Works(mailbox, same, replies=own).run(max_iterations=2, wait_time_seconds=0)
    assert own.receive(wait_time_seconds=0)[0].body.output == "a"
    assert asked.receive(wait_time_seconds=0)[0].body.output == "b"


def test_a_loop_ends_at_once_though_it_waits_for_messages() -> None:
    loop = Works(Requests(), same)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    eventually(lambda: loop.running)
    assert loop.shutdown(timeout=20)
    thread.join(20)
    assert not loop.running


def test_a_loop_that_is_stuck_is_not_said_to_have_ended() -> None:
    release, begun, mailbox = threading.Event(), threading.Event(), Requests()

    def stuck(_request: object, _beat: Beat) -> None:
        begun.set()
        release.wait(60)

    loop = Works(mailbox, stuck)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    mailbox.send(MainLoopRequest(request="a"))
    assert begun.wait(30)
    assert not loop.shutdown(timeout=0.05)
    release.set()
    thread.join(20)


def test_it_ends_when_its_mailbox_is_closed() -> None:
    mailbox = filled("a")
    mailbox.close()
    Works(mailbox, same).run()
    assert len(mailbox) == 1


def test_an_exit_gives_the_message_back_and_goes_through() -> None:
    def leave(_request: object, _beat: Beat) -> None:
        raise SystemExit(3)

    mailbox = filled("a")
    with pytest.raises(SystemExit):
        Works(mailbox, leave).run()
    assert mailbox.receive(wait_time_seconds=0)[0].delivery_count == 2


def test_the_times_of_the_work_feed_an_adaptive_threshold() -> None:
    clock = HandClock()
    history = AdaptiveThreshold(floor=1, ceiling=100, fewest=1, factor=2)
    loop = Works(filled("a", clock=clock), lambda _r, _b: clock.advance(7), clock=clock, history=history)
    loop.run(max_iterations=1, wait_time_seconds=0)
    assert history.seconds() == 14


def test_the_defaults_are_those_of_the_contract() -> None:
    for run in (Works.run, LoopGroup.run):
        parameters = inspect.signature(run).parameters
        defaults = [parameters[name].default for name in ("max_iterations", "visibility_timeout", "wait_time_seconds")]
        assert defaults == [None, 1800, 30]
    with pytest.raises(TypeError):
        MainLoop[object, object](Requests())  # type: ignore[abstract]
