"""Keeps the claims of a mailbox alive for as long as somebody answers for them."""

import logging
import threading
from dataclasses import dataclass

from herdsman.core.errors import HerdsmanError, NotFound, StaleWrite
from herdsman.core.model import ClaimKey
from herdsman.core.work import Orders, Pulse
from herdsman.ports import WorkQueue
from herdsman.worker.loops.heartbeat import Ticks

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    until: float
    lost: str | None = None
    cancelled: bool = False


class HeldClaims:
    """A claim is short and the queue wants a beat every few seconds; what holds a message may ask for much longer.

    So the beats come from a thread of their own, and stop for a claim that nobody has extended in time.
    """

    def __init__(self, queue: WorkQueue, clock: Ticks, *, interval: float, fence: float) -> None:
        self._queue = queue
        self._clock = clock
        self._interval = interval
        self._fence = fence
        self._lock = threading.Lock()
        self._held: dict[ClaimKey, _Held] = {}
        self._accepted_at = clock.monotonic()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.drain = False

    def start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="held-claims", daemon=True)
                self._thread.start()

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(self._interval)

    def keys(self) -> frozenset[ClaimKey]:
        with self._lock:
            return frozenset(self._held)

    def hold(self, key: ClaimKey, seconds: float, claimed_at: float) -> None:
        """`claimed_at` is from before the claim was asked for: it counts as a beat of that moment."""
        with self._lock:
            self._held[key] = _Held(claimed_at + seconds)
            self._accepted_at = max(self._accepted_at, claimed_at)

    def let_go(self, key: ClaimKey) -> None:
        with self._lock:
            self._held.pop(key, None)

    def extend(self, key: ClaimKey, seconds: float) -> bool:
        """False when the job was cancelled meanwhile; `StaleWrite` when it is no longer ours."""
        now = self._clock.monotonic()
        with self._lock:
            held = self._held.get(key)
            if held is None or held.until <= now:
                raise StaleWrite(f"job {key.job_id} was held too long or given back: leave it alone")
            if held.lost is not None:
                raise StaleWrite(f"job {key.job_id} is another's by now: {held.lost}")
            if now - self._accepted_at > self._fence:
                raise StaleWrite(
                    f"no beat was accepted for over {self._fence:g} s: job {key.job_id} may be lost"
                )
            held.until = max(held.until, now + seconds)
            return not held.cancelled

    def beat(self) -> None:
        sent = self._clock.monotonic()
        with self._lock:
            keys = tuple(key for key, held in self._held.items() if held.until > sent and held.lost is None)
        try:
            orders = self._queue.beat(Pulse(keys=keys))
        except (StaleWrite, NotFound) as error:
            self.dismiss(str(error))
        except HerdsmanError as error:
            logger.warning("a heartbeat was not accepted: %s", error)
        else:
            self._obey(orders, sent)

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            try:
                self.beat()
            except Exception:  # the claims would be lost without a word if the beats ended here
                logger.exception("a heartbeat failed; the next one follows in %.1fs", self._interval)

    def _obey(self, orders: Orders, sent: float) -> None:
        with self._lock:
            self._accepted_at = max(self._accepted_at, sent)
            self.drain = self.drain or orders.drain
            for key, held in self._held.items():
                held.lost = held.lost or orders.lost.get(key)
                held.cancelled = held.cancelled or key in orders.cancel

    def dismiss(self, why: str) -> None:
        """This worker is no longer wanted, and none of its claims is its own."""
        with self._lock:
            self.drain = True
            for held in self._held.values():
                held.lost = held.lost or why
        logger.warning("this worker is no longer wanted: %s", why)
