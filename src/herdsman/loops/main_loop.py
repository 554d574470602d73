"""A loop that takes messages from a mailbox, works on them one by one, and shows that it lives."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from herdsman.errors import HerdsmanError, StaleWrite
from herdsman.loops.heartbeat import AdaptiveThreshold, Heartbeat, Ticks
from herdsman.loops.mailbox import DeadLetter, DeadLetterPolicy, Mailbox, MainLoopRequest, MainLoopResult, Message

RequestT = TypeVar("RequestT")
OutputT = TypeVar("OutputT")
logger = logging.getLogger(__name__)


class WornOut(Exception):
    """The message was delivered too often, and nothing was ever heard of it."""


class MainLoop(ABC, Generic[RequestT, OutputT]):
    """Subclass it and write `perform`. It beats after each receive and after each message."""

    def __init__(
        self,
        requests: Mailbox[MainLoopRequest[RequestT]],
        *,
        name: str = "main-loop",
        replies: Mailbox[MainLoopResult[object]] | None = None,
        dead_letters: Mailbox[DeadLetter[MainLoopRequest[RequestT]]] | None = None,
        policy: DeadLetterPolicy | None = None,
        history: AdaptiveThreshold | None = None,
        extend_interval: float = 60.0,
        extension: float = 300.0,
        clock: Ticks = time,
    ) -> None:
        self.name = name
        self._requests = requests
        self._replies = replies
        self._dead_letters = dead_letters
        self._policy = policy or DeadLetterPolicy()
        self._history = history
        self._extend_interval, self._extension = extend_interval, extension
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: list[Message[MainLoopRequest[RequestT]]] = []
        """Received, and not begun yet."""
        self._current: Message[MainLoopRequest[RequestT]] | None = None
        """None when there is none, or when it was given back meanwhile."""
        self._heartbeat = Heartbeat(clock)
        self._shutdown_event = threading.Event()
        self._running = threading.Event()
        self._ended = threading.Event()
        self._ended.set()

    @abstractmethod
    def perform(self, request: RequestT, beat: Callable[[], None]) -> OutputT:
        """Do the work. Call `beat` now and then when it takes long; where it raises, stop: the message is lost."""

    @property
    def heartbeat(self) -> Heartbeat:
        return self._heartbeat

    @property
    def running(self) -> bool:
        return self._running.is_set()

    def run(
        self, max_iterations: int | None = None, visibility_timeout: float = 1800, wait_time_seconds: float = 30
    ) -> None:
        """Until `shutdown`, the mailbox's end, or so many receives. What is left in hand goes back to the mailbox."""
        self._ended.clear()
        self._running.set()
        try:
            done = 0
            while not self._shutdown_event.is_set() and not self._requests.closed:
                if max_iterations is not None and done >= max_iterations:
                    break
                done += 1
                found = self._requests.receive(
                    visibility_timeout=visibility_timeout, wait_time_seconds=wait_time_seconds
                )
                with self._lock:
                    self._waiting = list(found)
                self._heartbeat.beat()
                while not self._shutdown_event.is_set():
                    with self._lock:
                        message = self._current = self._waiting.pop(0) if self._waiting else None
                    if message is None:
                        break
                    try:
                        self._work_on(message)
                    except StaleWrite as error:
                        logger.warning("%s: message %s is no longer ours: %s", self.name, message.id, error)
                    except HerdsmanError as error:
                        said = "%s: message %s could not be answered for: %s"
                        logger.warning(said, self.name, message.id, error)
                    with self._lock:
                        self._current = None
                    self._heartbeat.beat()
        finally:
            self._give_back(everything=True)
            self._running.clear()
            self._shutdown_event.clear()
            self._ended.set()

    def stop(self) -> None:
        """Ask it to end after the message at hand; returns at once. May be repeated."""
        if not self._ended.is_set():
            self._shutdown_event.set()
            self._requests.wake()

    def shutdown(self, *, timeout: float = 30.0) -> bool:
        """Ask it to end and wait; False when it has not ended in time."""
        until = time.monotonic() + timeout
        self.stop()
        while not self._ended.wait(max(0.0, min(0.2, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
            self.stop()  # a wake that came just before it began to wait would be lost
        return True

    def pause(self) -> None:
        """Return the messages that have not been begun, for others to take; more are taken after the next beat."""
        self._give_back(everything=False)

    def give_back(self) -> None:
        """Return every message in hand and take no more, for when this process is about to end."""
        self._shutdown_event.set()
        self._give_back(everything=True)

    def _give_back(self, *, everything: bool) -> None:
        """What has not been begun, and where `everything` goes back also the message at hand."""
        with self._lock:
            messages, self._waiting = self._waiting, []
            if everything and self._current is not None:
                messages, self._current = [self._current, *messages], None
        for message in messages:
            try:
                message.nack(visibility_timeout=0)
            except StaleWrite:  # it has gone back by itself
                continue
            except HerdsmanError as error:
                said = "message %s could not be given back: %s; it returns when its time is over"
                logger.warning(said, message.id, error)

    def _work_on(self, msg: Message[MainLoopRequest[RequestT]]) -> None:
        if self._policy.worn_out(msg.delivery_count):
            self._give_up(msg, WornOut(f"delivered {msg.delivery_count} times and never finished"))
            return
        begun = self._clock.monotonic()
        extender = LeaseExtender(msg, interval=self._extend_interval, extension=self._extension, clock=self._clock)

        def beat() -> None:
            self._heartbeat.beat()
            extender.beat()

        try:
            output = self.perform(msg.body.request, beat)
        except StaleWrite as error:
            msg.nack(error=error)  # it is refused, unless the error was about something else
        except Exception as error:
            logger.exception("%s: message %s failed", self.name, msg.id)
            if self._policy.gives_up(error, msg.delivery_count):
                self._give_up(msg, error)
            else:
                msg.nack(visibility_timeout=self._policy.delay(msg.delivery_count), error=error)
        else:
            if self._history is not None:
                self._history.note(self._clock.monotonic() - begun)
            self._ack(msg, output)
            self._reply(msg, MainLoopResult(message_id=msg.id, output=output, trace_id=msg.body.trace_id))

    def _ack(self, msg: Message[MainLoopRequest[RequestT]], output: OutputT) -> None:
        """Until it is recorded: work that was done is not lost to an outage of the queue (J12)."""
        while True:
            try:
                msg.ack(output)
            except StaleWrite:
                raise
            except HerdsmanError as error:
                if self._current is not msg:
                    raise
                logger.warning("%s: the end of message %s could not be reported: %s", self.name, msg.id, error)
                self._heartbeat.beat()
            else:
                return

    def _give_up(self, msg: Message[MainLoopRequest[RequestT]], error: Exception) -> None:
        """The dead letter is sent before the message is given up: a crash in between shows it twice, never not at all."""
        if self._dead_letters is not None:
            self._dead_letters.send(
                DeadLetter(
                    message_id=msg.id,
                    body=msg.body,
                    source=self.name,
                    deliveries=msg.delivery_count,
                    first_sent_at=msg.sent_at,
                    died_at=datetime.now(UTC),
                    error_type=type(error).__name__,
                    error=str(error),
                )
            )
        msg.reject(error)
        logger.error("%s: message %s is given up after %d deliveries", self.name, msg.id, msg.delivery_count)
        said = f"{type(error).__name__}: {error}"
        self._reply(msg, MainLoopResult(message_id=msg.id, error=said, trace_id=msg.body.trace_id))

    def _reply(self, msg: Message[MainLoopRequest[RequestT]], result: MainLoopResult[object]) -> None:
        mailbox = self._replies if msg.body.reply_to is None else msg.body.reply_to
        if mailbox is not None:
            mailbox.send(result)


class LeaseExtender:
    """A beat extends the message's visibility; work that is stuck does not beat, and loses its message."""

    def __init__(
        self, message: Message[Any], *, interval: float = 60.0, extension: float = 300.0, clock: Ticks = time
    ) -> None:
        self._message = message
        self._interval = interval
        self._extension = extension
        self._clock = clock
        self._extended_at = clock.monotonic()

    def beat(self) -> None:
        """At most one extension per interval. `StaleWrite`: the message is somebody else's now, so stop."""
        now = self._clock.monotonic()
        if now - self._extended_at >= self._interval:
            self._message.extend(self._extension)
            self._extended_at = now
