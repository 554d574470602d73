"""The jobs of a work queue as the messages of a mailbox."""

import logging
import math
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from herdsman.errors import HerdsmanError, InvalidRequest, NotFound, StaleWrite
from herdsman.ids import JobId
from herdsman.jobs.model import Claim, ClaimKey, Failure, FailureClass
from herdsman.jobs.protocol import ClaimRequest, Done, Ending, Failed, FinishResult, GivenBack, WorkerHeartbeat
from herdsman.loops.heartbeat import Ticks
from herdsman.loops.mailbox import MainLoopRequest, Message
from herdsman.ports import WorkQueue

logger = logging.getLogger(__name__)

Body = MainLoopRequest[object]

LONGEST_WAIT = 5.0
LONGEST_ERROR = 8000
TRIES = 5


@dataclass(slots=True)
class _Held:
    until: float
    lost: str | None = None
    cancelled: bool = False


class WorkQueueMailbox:
    """Receive is a claim, ack the end with its result, nack a failure or a return, extend keeps the claim.

    When a message fails, the queue's own rules say when it runs again; the visibility timeout of a nack has no say.
    A claim is short and the queue wants a beat every few seconds; what holds a message may ask for much longer. So the
    beats come from a thread of their own, and stop for a claim that nobody has extended in time.
    """

    def __init__(
        self,
        queue: WorkQueue,
        types: Sequence[str] = (),
        *,
        batch: int = 1,
        beat_interval: float = 5.0,
        fence: float = 25.0,
        retry_delay: float = 0.5,
        clock: Ticks = time,
    ) -> None:
        self._queue = queue
        self._ask = ClaimRequest(types=tuple(types), most=dict.fromkeys(types, batch) if batch > 1 else {}, begin=True)
        self._clock = clock
        self._retry_delay = retry_delay
        self._fence = fence
        self._unsure_until = -math.inf
        self._asking = threading.Lock()
        self._beat_interval = beat_interval
        self._lock = threading.Lock()
        self._held: dict[ClaimKey, _Held] = {}
        self._accepted_at = clock.monotonic()
        self._beats: threading.Thread | None = None
        self._drain = False
        self._closing = threading.Event()
        self._woken = threading.Event()

    @property
    def closed(self) -> bool:
        """The queue wants no more of this worker."""
        return self._drain

    def close(self) -> None:
        """Stop beating and say that this worker leaves; give back its messages before."""
        self._closing.set()
        with self._lock:
            beats, self._beats = self._beats, None
        if beats is not None:
            beats.join(self._beat_interval)
        self._queue.leave()

    def send(self, body: Body) -> str:
        raise InvalidRequest(f"{body.request!r} cannot be sent through a worker: submit it as a job")

    def receive(self, *, visibility_timeout: float = 1800, wait_time_seconds: float = 30) -> list[Message[Body]]:
        """Asks in short steps, so that a wake is heard."""
        with self._lock:
            if self._beats is None and not self._closing.is_set():
                self._beats = threading.Thread(target=self._keep_beating, name="held-claims", daemon=True)
                self._beats.start()
        self._woken.clear()
        until = self._clock.monotonic() + wait_time_seconds
        while not self.closed:
            begun = self._clock.monotonic()
            with self._asking:  # what one loop was just given must not seem unheard of to another
                claims = self._claim(timedelta(seconds=max(0.0, min(LONGEST_WAIT, until - begun))))
                with self._lock:
                    self._held |= {claim.key: _Held(begun + visibility_timeout) for claim in claims}
                    if claims:  # asked for after `begun`, so they count as a beat of that moment
                        self._accepted_at = max(self._accepted_at, begun)
            if claims:
                return [
                    Message(
                        id=claim.key.job_id,
                        body=MainLoopRequest(request=claim.payload),
                        receipt_handle=str(claim.key.token),
                        delivery_count=claim.attempt,
                        sent_at=None,
                        mailbox=self,
                    )
                    for claim in claims
                ]
            if self._woken.is_set() or self._clock.monotonic() >= until:
                break
        return []

    def ack(self, message: Message[Body], output: object = None) -> None:
        key = _key(message)
        result = self._finish(Done(key, output))
        if result.refused is not None:  # such a result is never taken, and neither would the next one be
            self._finish(Failed(key, Failure(kind=FailureClass.USER_ERROR, error=result.refused)))

    def nack(
        self,
        message: Message[Body],
        *,
        visibility_timeout: float = 0,  # noqa: ARG002  the queue's own rules decide
        error: BaseException | None = None,
    ) -> None:
        key = _key(message)
        if error is None:
            self._finish(GivenBack(key, "its loop gave it back"))
        else:
            kind = FailureClass.OUT_OF_MEMORY if isinstance(error, MemoryError) else FailureClass.JOB_ERROR
            self._finish(Failed(key, Failure(kind=kind, error=_text(error))))

    def reject(self, message: Message[Body], error: BaseException) -> None:
        self._finish(Failed(_key(message), Failure(kind=FailureClass.USER_ERROR, error=_text(error))))

    def extend(self, message: Message[Body], visibility_timeout: float) -> None:
        key = _key(message)
        now = self._clock.monotonic()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.until <= now:
                raise StaleWrite(f"job {key.job_id} was held too long or given back: leave it alone")
            if held.lost is not None:
                raise StaleWrite(f"job {key.job_id} is another's by now: {held.lost}")
            if now - self._accepted_at > self._fence:
                raise StaleWrite(f"no beat was accepted for over {self._fence:g} s: job {key.job_id} may be lost")
            held.until = max(held.until, now + visibility_timeout)
        if held.cancelled:
            self._finish(GivenBack(key, "it was cancelled"))
            raise StaleWrite(f"job {key.job_id} was cancelled: stop working on it")

    def wake(self) -> None:
        self._woken.set()

    def _claim(self, wait: timedelta) -> Sequence[Claim]:
        try:
            if self._clock.monotonic() < self._unsure_until:
                # A claim begins when it is given out, so it comes again under a new token only (J11).
                with self._lock:
                    ours = frozenset(self._held)
                if unheard := [key for key in self._queue.held() if key not in ours]:
                    self._queue.finish([GivenBack(key, "the answer that brought it was lost") for key in unheard])
            claims = self._queue.claim(self._ask, wait)
        except (StaleWrite, NotFound) as error:
            self._dismiss(str(error))
            return ()
        except HerdsmanError as error:
            logger.warning("no job could be asked for: %s; the next try follows", error)
            # The answer may have been lost, and not the claim; the request may even be carried out later.
            self._unsure_until = self._clock.monotonic() + self._fence
            self._woken.wait(self._retry_delay)
            return ()
        if claims:
            self._unsure_until = -math.inf
        return claims

    def _finish(self, ending: Ending) -> FinishResult:
        """An ending may be reported twice; one that is never reported costs the work that was done."""
        for tried in range(1, TRIES + 1):
            try:
                result = self._queue.finish([ending]).told[0]
                break
            except (StaleWrite, NotFound) as error:
                raise StaleWrite(f"job {ending.key.job_id} is no longer ours: {error}") from error
            except InvalidRequest as error:
                return FinishResult(key=ending.key, refused=str(error))
            except HerdsmanError:
                if tried == TRIES:
                    raise
                time.sleep(self._retry_delay * tried)
        else:
            raise AssertionError("the last try returns or raises")
        if result.refused is None or result.stale:
            with self._lock:
                self._held.pop(ending.key, None)
        if result.stale:
            raise StaleWrite(f"job {ending.key.job_id} is another's by now: {result.refused}")
        return result

    def beat(self) -> None:
        sent = self._clock.monotonic()
        with self._lock:
            keys = tuple(key for key, held in self._held.items() if held.until > sent and held.lost is None)
        try:
            reply = self._queue.beat(WorkerHeartbeat(keys=keys))
        except (StaleWrite, NotFound) as error:
            self._dismiss(str(error))
        except HerdsmanError as error:
            logger.warning("a heartbeat was not accepted: %s", error)
        else:
            with self._lock:
                self._accepted_at = max(self._accepted_at, sent)
                self._drain = self._drain or reply.drain
                for key, held in self._held.items():
                    held.lost = held.lost or reply.lost.get(key)
                    held.cancelled = held.cancelled or key in reply.cancel

    def _keep_beating(self) -> None:
        while not self._closing.wait(self._beat_interval):
            try:
                self.beat()
            except Exception:  # the claims would be lost without a word if the beats ended here
                logger.exception("a heartbeat failed; the next one follows in %.1fs", self._beat_interval)

    def _dismiss(self, reason: str) -> None:
        """This worker is no longer wanted, and none of its claims is its own."""
        with self._lock:
            self._drain = True
            for held in self._held.values():
                held.lost = held.lost or reason
        logger.warning("this worker is no longer wanted: %s", reason)


def _key(message: Message[Body]) -> ClaimKey:
    return ClaimKey(JobId(message.id), int(message.receipt_handle))


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-LONGEST_ERROR:]
